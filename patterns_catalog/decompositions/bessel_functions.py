"""Bessel functions of order 0 and 1.

Rational functions of S. L. Moshier, Cephes Math Library (BSD): j0.c and j1.c, which ATen has too. PP / PQ and QP / QQ
are those of the amplitudes of cosine and sine beyond 5; R has the two first zeros taken out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompositions.polynomials import polynomial
from patterns_catalog.decompositions.promotion import float_function

_J0_PP = (
    0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687, 8.74716500199817,
    5.303240382353949, 1.0,
)  # fmt: skip
_J0_PQ = (
    0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171, 8.761908832370695,
    5.306052882353947, 1.0,
)  # fmt: skip
_J0_QP = (
    -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683, -177.68116798048806,
    -147.07750515495118, -51.41053267665993, -6.050143506007285,
)  # fmt: skip
_J0_QQ = (
    64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169,
    2062.0933166032783, 242.0057402402914,
)  # fmt: skip
_J0_RP = (
    -4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0,
)  # fmt: skip
_J0_RQ = (
    499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683, 2112775201154.892,
    310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18,
)  # fmt: skip
_J1_PP = (
    0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076, 8.424045901417724,
    5.214515986823615, 1.0,
)  # fmt: skip
_J1_PQ = (
    0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015, 8.399855543276042,
    5.209828486823619, 1.0,
)  # fmt: skip
_J1_QP = (
    0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261,
    597.4896124006136, 211.68875710057213, 25.207020585802372,
)  # fmt: skip
_J1_QQ = (
    74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507,
    2826.1927851763908, 336.0936078106983,
)  # fmt: skip
_J1_RP = (
    -899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0,
)  # fmt: skip
_J1_RQ = (
    620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925, 4749141220799.914,
    784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18,
)  # fmt: skip
_Y0_YP = (
    15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115, 87590639439536.7,
    -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16,
)  # fmt: skip
_Y0_YQ = (
    1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935, 20297961275010.555,
    3171577528429750.5, 2.5059625617265306e+17,
)  # fmt: skip
_Y1_YP = (
    1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0, 2.024394757135949e+17,
    -7.788771962659501e+17,
)  # fmt: skip
_Y1_YQ = (
    594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617, 3882312774962.3857,
    620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18,
)  # fmt: skip


def _waves(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Bessel functions of both kinds of x >= 5: sums of a cosine and a sine."""
    pp, pq, qp, qq = ((_J0_PP, _J0_PQ, _J0_QP, _J0_QQ), (_J1_PP, _J1_PQ, _J1_QP, _J1_QQ))[order]
    inverse = 5.0 / x
    square = inverse * inverse
    even = polynomial(square, pp) / polynomial(square, pq)
    odd = inverse * polynomial(square, qp) / polynomial(square, qq)
    phase = x - (0.25 + 0.5 * order) * math.pi
    cosine, sine, size = phase.cos(), phase.sin(), math.sqrt(2 / math.pi) / x.sqrt()
    return (even * cosine - odd * sine) * size, (even * sine + odd * cosine) * size


def _j0(x: Tensor) -> Tensor:
    """J0 of x >= 0."""
    square = x.clamp(max=5.0) ** 2
    zeros = (square - 5.78318596294678452118) * (square - 30.4712623436620863991)
    near = zeros * polynomial(square, _J0_RP) / polynomial(square, _J0_RQ)
    return torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 0)[0])


def _j1(x: Tensor) -> Tensor:
    """J1 of x >= 0."""
    close = x.clamp(max=5.0)
    square = close * close
    zeros = (square - 14.6819706421238932572) * (square - 49.2184563216946036703)
    near = polynomial(square, _J1_RP) / polynomial(square, _J1_RQ) * close * zeros
    return torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 1)[0])


def _poles(x: Tensor, value: Tensor) -> Tensor:
    return torch.where(x == 0.0, -math.inf, torch.where(x < 0.0, math.nan, value))


@float_function("aten.special_bessel_j0", examples=[example("40xf32[-20,20]"), example("5xsi32")])
def bessel_j0(x: Tensor) -> Tensor:
    "rational functions up to 5, beyond a sum of a cosine and a sine (Cephes)"
    return _j0(x.abs())


@float_function("aten.special_bessel_j1", examples=[example("40xf32[-20,20]"), example("5xsi32")])
def bessel_j1(x: Tensor) -> Tensor:
    "rational functions up to 5, beyond a sum of a cosine and a sine (Cephes), with the sign of x"
    value = _j1(x.abs())
    return torch.where(x < 0.0, -value, value)


@float_function("aten.special_bessel_y0", examples=[example("40xf32[0,20]"), example("5xsi32")])
def bessel_y0(x: Tensor) -> Tensor:
    "a rational function plus 2 / pi log(x) j0(x) up to 5, beyond a sum of a sine and a cosine (Cephes)"
    close = x.clamp(max=5.0)
    square = close * close
    near = polynomial(square, _Y0_YP) / polynomial(square, _Y0_YQ) + 2 / math.pi * close.log() * _j0(close)
    return _poles(x, torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 0)[1]))


@float_function("aten.special_bessel_y1", examples=[example("40xf32[0,20]"), example("5xsi32")])
def bessel_y1(x: Tensor) -> Tensor:
    "a rational function plus 2 / pi (log(x) j1(x) - 1 / x) up to 5, beyond a sum of a sine and a cosine (Cephes)"
    close = x.clamp(max=5.0)
    square = close * close
    series = close * (polynomial(square, _Y1_YP) / polynomial(square, _Y1_YQ))
    near = series + 2 / math.pi * (_j1(close) * close.log() - 1.0 / close)
    return _poles(x, torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 1)[1]))


@float_function("aten.special_spherical_bessel_j0", examples=[example("40xf32[-20,20]"), example("5xsi32")])
def spherical_bessel_j0(value: Tensor) -> Tensor:
    "sin(x) / x, 1 at zero and 0 at infinity"
    divisor = torch.where(value == 0.0, 1.0, value)
    quotient = torch.where(value == 0.0, 1.0, value.sin() / divisor)
    return torch.where(value.isinf(), 0.0, quotient)

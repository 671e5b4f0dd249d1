"""The error function's complement and inverse, and the normal distribution.

erfc: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23, 1969.
erfinv: M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2012.
ndtri: S. L. Moshier, Cephes Math Library (BSD), ndtri.c, which ATen has too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompositions.polynomials import polynomial
from patterns_catalog.decompositions.promotion import float_function

_ERFC_MIDDLE = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
_ERFC_MIDDLE_DIVISOR = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
_ERFC_FAR = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_ERFC_FAR_DIVISOR = (
    1.0, 2.56852019228982242, 1.87295284992346047, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip
_CENTRAL = 0.46875
"""Up to here erf has no cancellation to fear."""


def _scaled_tail(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x) of x >= 0.46875."""
    middle = x.clamp(max=4.0)
    near = polynomial(middle, _ERFC_MIDDLE) / polynomial(middle, _ERFC_MIDDLE_DIVISOR)
    inverse = 1.0 / x.clamp(min=4.0)
    square = inverse * inverse
    fraction = square * polynomial(square, _ERFC_FAR) / polynomial(square, _ERFC_FAR_DIVISOR)
    return torch.where(x <= 4.0, near, (1 / math.sqrt(math.pi) - fraction) * inverse)


def _gaussian(x: Tensor, sign: float) -> Tensor:
    """exp(sign x^2), the square taken in two parts of which the first is exact."""
    coarse = (x * 16.0).trunc() / 16.0
    coarse = torch.where(coarse.isfinite(), coarse, x)
    rest = torch.where(x == coarse, 0.0, (x - coarse) * (x + coarse))
    return (sign * coarse * coarse).exp() * (sign * rest).exp()


@float_function("aten.erfc", "aten.special_erfc", examples=[
    example("2x9xf32"), example("40xf32[-3,9.5]"), example("4xsi32[-2,3]"),
])  # fmt: skip
def erfc(x: Tensor) -> Tensor:
    "1 - erf(x) in the middle, exp(-x^2) times a rational function in the tails (Cody 1969)"
    magnitude = x.abs()
    tail = _gaussian(magnitude.clamp(max=30.0), -1.0) * _scaled_tail(magnitude.clamp(min=_CENTRAL))
    return torch.where(magnitude <= _CENTRAL, 1.0 - x.erf(), torch.where(x < 0, 2.0 - tail, tail))


@float_function("aten.special_erfcx", examples=[example("2x9xf32"), example("40xf32[-9,40]"), example("4xsi32[-2,3]")])
def erfcx(x: Tensor) -> Tensor:
    "exp(x^2) erfc(x): 2 exp(x^2) minus that of -x for negative x (Cody 1969)"
    magnitude = x.abs()
    tail = _scaled_tail(magnitude.clamp(min=_CENTRAL))
    growth = _gaussian(x, 1.0)
    central = growth * (1.0 - x.erf())
    return torch.where(magnitude <= _CENTRAL, central, torch.where(x < 0, 2.0 * growth - tail, tail))


_ERFINV_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


@float_function("aten.erfinv", "aten.special_erfinv", examples=[
    example("2x9xf32[-1,1]"), example("40xf32[0.99,1]"), example("3xsi32[-1,1]"), example("5xf32"),
])  # fmt: skip
def erfinv(x: Tensor) -> Tensor:
    "x times a polynomial of -log(1 - x^2), or of its root in the tails (Giles 2012); infinite at 1, NaN beyond"
    w = -((1.0 - x) * (1.0 + x)).log()
    factor = torch.where(w < 5.0, polynomial(w - 2.5, _ERFINV_CENTRAL), polynomial(w.sqrt() - 3.0, _ERFINV_TAIL))
    return torch.where(x.abs() == 1.0, x / 0.0, x * factor)


@float_function("aten.special_ndtr", examples=[example("2x9xf32"), example("40xf32[-13,5]"), example("4xsi32[-2,3]")])
def ndtr(x: Tensor) -> Tensor:
    "the normal distribution, erfc(-x / sqrt(2)) / 2"
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))


@float_function("aten.special_log_ndtr", examples=[
    example("2x9xf32"), example("40xf32[-40,9]"), example("4xsi32[-2,3]"),
])  # fmt: skip
def log_ndtr(x: Tensor) -> Tensor:
    "log(erfcx(-x / sqrt(2)) / 2) - x^2 / 2 left of -1, else log1p(-erfc(x / sqrt(2)) / 2)"
    t = x * math.sqrt(0.5)
    left = (torch.special.erfcx(-t.clamp(max=0.0)) / 2).log() - t * t
    return torch.where(x < -1.0, left, (-torch.erfc(t) / 2).log1p())


_NDTRI_CENTRAL = (
    -59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968, -1.2391658386738125,
)  # fmt: skip
_NDTRI_CENTRAL_DIVISOR = (
    1.0, 1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937, 200.26021238006066,
    -82.03722561683334, 15.90562251262117, -1.1833162112133,
)  # fmt: skip
_NDTRI_TAIL = (
    4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008, 14.684956192885803,
    2.1866330685079025, -0.1402560791713545, -0.03504246268278482, -0.0008574567851546854,
)  # fmt: skip
_NDTRI_TAIL_DIVISOR = (
    1.0, 15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075, 2.504649462083094,
    -0.14218292285478779, -0.03808064076915783, -0.0009332594808954574,
)  # fmt: skip
_NDTRI_FAR = (
    3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755, 0.20148538954917908,
    0.012371663481782003, 0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09,
)  # fmt: skip
_NDTRI_FAR_DIVISOR = (
    1.0, 6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663, 0.013420400608854318,
    0.00032801446468212774, 2.8924786474538068e-06, 6.790194080099813e-09,
)  # fmt: skip


@float_function("aten.special_ndtri", examples=[
    example("2x9xf32[0,1]"), example("40xf32[0,0.0001]"), example("3xsi32[0,1]"), example("5xf32"),
])  # fmt: skip
def ndtri(y: Tensor) -> Tensor:
    "the inverse of the normal distribution by rational functions (Cephes); infinite at 0 and 1, NaN beyond"
    middle = y - 0.5
    square = middle * middle
    fraction = polynomial(square, _NDTRI_CENTRAL) / polynomial(square, _NDTRI_CENTRAL_DIVISOR)
    central = (middle + middle * (square * fraction)) * math.sqrt(2 * math.pi)
    low = math.exp(-2)
    upper = y > 1.0 - low
    x = (-2.0 * torch.where(upper, 1.0 - y, y).log()).sqrt()
    z = 1.0 / x
    tail = polynomial(z, _NDTRI_TAIL) / polynomial(z, _NDTRI_TAIL_DIVISOR)
    far = polynomial(z, _NDTRI_FAR) / polynomial(z, _NDTRI_FAR_DIVISOR)
    outer = x - x.log() * z - z * torch.where(x < 8.0, tail, far)
    value = torch.where((y > low) & ~upper, central, torch.where(upper, outer, -outer))
    return torch.where(y == 0.0, -math.inf, torch.where(y == 1.0, math.inf, value))

"""The Airy function.

Rational functions of S. L. Moshier, Cephes Math Library (BSD), airy.c, which ATen has too: AN / AD that of the
decaying side, AFN / AFD and AGN / AGD those of the waves.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompositions.polynomials import polynomial
from patterns_catalog.decompositions.promotion import float_function

_AIRY_AN = (
    0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058, 159.75639135016442,
    70.53609068404442, 14.026469116338967, 1.0,
)  # fmt: skip
_AIRY_AD = (
    0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045, 164.2346928715297,
    71.47784008255756, 14.095913560783403, 1.0,
)  # fmt: skip
_AIRY_AFN = (
    -0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191, -0.04919001326095003,
    -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08,
)  # fmt: skip
_AIRY_AFD = (
    13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596, 1.4752914677166642,
    0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07,
)  # fmt: skip
_AIRY_AGN = (
    0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502, 0.35146565610554764,
    0.06338889196289255, 0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06, 8.117892395543892e-08,
    3.415517847659236e-10,
)  # fmt: skip
_AIRY_AGD = (
    9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755, 0.9542936116189619,
    0.08645808263523921, 0.004126565238242226, 0.00010125908511650914, 1.1716673321441352e-06, 4.9183457006293e-09,
)  # fmt: skip

_TERMS = 11
"""Of the series around zero: enough for float64 at 2.09."""


@float_function("aten.special_airy_ai", examples=[example("40xf32[-20,12]"), example("2x9xf32"), example("5xsi32")])
def airy_ai(value: Tensor) -> Tensor:
    "its Taylor series in the middle, a wave left of -2.09, a decaying exponential right of 2.09 (Cephes)"
    left, middle, right = value.clamp(max=-2.09), value.clamp(-2.09, 2.09), value.clamp(min=2.09)
    scale = 1 / math.sqrt(math.pi)

    root = (-left).sqrt()
    zeta = left * -2.0 * root / 3.0
    z = 1.0 / zeta
    even = 1.0 + z * z * polynomial(z * z, _AIRY_AFN) / polynomial(z * z, _AIRY_AFD)
    odd = z * polynomial(z * z, _AIRY_AGN) / polynomial(z * z, _AIRY_AGD)
    phase = zeta + math.pi / 4
    wave = scale / root.sqrt() * (phase.sin() * even - phase.cos() * odd)

    zeta = 2.0 * right * right.sqrt() / 3.0
    fraction = polynomial(1.0 / zeta, _AIRY_AN) / polynomial(1.0 / zeta, _AIRY_AD)
    decay = scale * fraction * (-zeta).exp() / (2.0 * right.sqrt().sqrt())

    cube = middle * middle * middle
    f, g = torch.ones_like(middle), middle
    even_term, odd_term = f, g
    for k in range(3, 3 * _TERMS, 3):
        even_term = even_term * cube / float(k * (k - 1))
        odd_term = odd_term * cube / float(k * (k + 1))
        f, g = f + even_term, g + odd_term
    series = 0.355028053887817239260 * f - 0.258819403792806798405 * g

    chosen = torch.where(value < -2.09, wave, torch.where(value < 2.09, series, decay))
    return torch.where(value.isinf(), math.nan, chosen)

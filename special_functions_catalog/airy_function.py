"""The Airy function.

Rational functions of S. L. Moshier, Cephes Math Library (BSD), airy.c, which ATen has too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompose.promotion import float_function
from special_functions_catalog.polynomials import ratio

_TERMS = 11
"""The number of terms of the series around zero, enough for float64 at 2.09."""


@float_function("aten.special_airy_ai", unspecified={
    "element types": "far left of zero, where integers may be, the phase of the wave is rounded",
}, examples=[example("40xf32[-20,12]"), example("2x9xf32"), example("5xsi32[-20,12]")])  # fmt: skip
def airy_ai(value: Tensor) -> Tensor:
    "its Taylor series in the middle, a wave left of -2.09, a decaying exponential right of 2.09 (Cephes)"
    left, middle, right = value.clamp(max=-2.09), value.clamp(-2.09, 2.09), value.clamp(min=2.09)
    scale = 1 / math.sqrt(math.pi)

    root = (-left).sqrt()
    zeta = left * -2.0 * root / 3.0
    z = 1.0 / zeta
    even = 1.0 + z * z * ratio(z * z, "airy.even")
    odd = z * ratio(z * z, "airy.odd")
    phase = zeta + math.pi / 4
    wave = scale / root.sqrt() * (phase.sin() * even - phase.cos() * odd)

    zeta = 2.0 * right * right.sqrt() / 3.0
    fraction = ratio(1.0 / zeta, "airy.decay")
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

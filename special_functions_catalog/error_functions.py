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
from patterns_catalog.decompose.promotion import float_function
from special_functions_catalog.polynomials import polynomial, ratio

_CENTRAL = 0.46875
"""Up to here erf has no cancellation to fear."""


def _scaled_tail(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x) of x >= 0.46875."""
    middle = x.clamp(max=4.0)
    near = ratio(middle, "erfc.middle")
    inverse = 1.0 / x.clamp(min=4.0)
    square = inverse * inverse
    fraction = square * ratio(square, "erfc.far")
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
    "exp(x^2) erfc(x); for negative x, 2 exp(x^2) minus the value at -x (Cody 1969)"
    magnitude = x.abs()
    tail = _scaled_tail(magnitude.clamp(min=_CENTRAL))
    growth = _gaussian(x, 1.0)
    central = growth * (1.0 - x.erf())
    return torch.where(magnitude <= _CENTRAL, central, torch.where(x < 0, 2.0 * growth - tail, tail))


@float_function("aten.erfinv", "aten.special_erfinv", examples=[
    example("2x9xf32[-1,1]"), example("40xf32[0.99,1]"), example("3xsi32[-1,1]"), example("5xf32"),
])  # fmt: skip
def erfinv(x: Tensor) -> Tensor:
    "x times a polynomial of -log(1 - x^2), or of its root in the tails (Giles 2012); infinite at 1, NaN beyond"
    w = -((1.0 - x) * (1.0 + x)).log()
    factor = torch.where(w < 5.0, polynomial(w - 2.5, "erfinv.central"), polynomial(w.sqrt() - 3.0, "erfinv.tail"))
    return torch.where(x.abs() == 1.0, x / 0.0, x * factor)


@float_function("aten.special_ndtr", examples=[example("2x9xf32"), example("40xf32[-13,5]"), example("4xsi32[-2,3]")])
def ndtr(x: Tensor) -> Tensor:
    "the normal distribution, erfc(-x / sqrt(2)) / 2"
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))


@float_function("aten.special_ndtri", examples=[
    example("2x9xf32[0,1]"), example("40xf32[0,0.0001]"), example("3xsi32[0,1]"), example("5xf32"),
])  # fmt: skip
def ndtri(y: Tensor) -> Tensor:
    "the inverse of the normal distribution by rational functions (Cephes); infinite at 0 and 1, NaN beyond"
    middle = y - 0.5
    square = middle * middle
    fraction = ratio(square, "ndtri.central")
    central = (middle + middle * (square * fraction)) * math.sqrt(2 * math.pi)
    low = math.exp(-2)
    upper = y > 1.0 - low
    x = (-2.0 * torch.where(upper, 1.0 - y, y).log()).sqrt()
    z = 1.0 / x
    tail = ratio(z, "ndtri.tail")
    far = ratio(z, "ndtri.far")
    outer = x - x.log() * z - z * torch.where(x < 8.0, tail, far)
    value = torch.where((y > low) & ~upper, central, torch.where(upper, outer, -outer))
    return torch.where(y == 0.0, -math.inf, torch.where(y == 1.0, math.inf, value))

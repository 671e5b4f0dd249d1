"""Bessel functions of order 0 and 1.

Rational functions of S. L. Moshier, Cephes Math Library (BSD): j0.c and j1.c, which ATen has too. Those near zero
have the two first zeros taken out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompose.promotion import float_function
from special_functions_catalog.polynomials import ratio


def _waves(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Bessel functions of both kinds of x >= 5: sums of a cosine and a sine."""
    inverse = 5.0 / x
    square = inverse * inverse
    even, odd = ratio(square, f"j{order}.even"), inverse * ratio(square, f"j{order}.odd")
    phase = x - (0.25 + 0.5 * order) * math.pi
    cosine, sine, size = phase.cos(), phase.sin(), math.sqrt(2 / math.pi) / x.sqrt()
    return (even * cosine - odd * sine) * size, (even * sine + odd * cosine) * size


def _j0(x: Tensor) -> Tensor:
    """J0 of x >= 0."""
    square = x.clamp(max=5.0) ** 2
    zeros = (square - 5.78318596294678452118) * (square - 30.4712623436620863991)
    near = zeros * ratio(square, "j0.near")
    return torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 0)[0])


def _j1(x: Tensor) -> Tensor:
    """J1 of x >= 0."""
    close = x.clamp(max=5.0)
    square = close * close
    zeros = (square - 14.6819706421238932572) * (square - 49.2184563216946036703)
    near = ratio(square, "j1.near") * close * zeros
    return torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 1)[0])


def _poles(x: Tensor, value: Tensor) -> Tensor:
    return torch.where(x == 0.0, -math.inf, torch.where(x < 0.0, math.nan, value))


@float_function("aten.special_bessel_j0", examples=[example("40xf32[-20,20]"), example("5xsi32")])
def bessel_j0(x: Tensor) -> Tensor:
    "rational functions up to 5, then a sum of a cosine and a sine (Cephes)"
    return _j0(x.abs())


@float_function("aten.special_bessel_j1", examples=[example("40xf32[-20,20]"), example("5xsi32")])
def bessel_j1(x: Tensor) -> Tensor:
    "rational functions up to 5, then a sum of a cosine and a sine (Cephes), with the sign of x"
    value = _j1(x.abs())
    return torch.where(x < 0.0, -value, value)


@float_function("aten.special_bessel_y0", examples=[example("40xf32[0,20]"), example("5xsi32")])
def bessel_y0(x: Tensor) -> Tensor:
    "a rational function plus 2 / pi log(x) j0(x) up to 5, then a sum of a sine and a cosine (Cephes)"
    close = x.clamp(max=5.0)
    square = close * close
    near = ratio(square, "y0.near") + 2 / math.pi * close.log() * _j0(close)
    return _poles(x, torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 0)[1]))


@float_function("aten.special_bessel_y1", examples=[example("40xf32[0,20]"), example("5xsi32")])
def bessel_y1(x: Tensor) -> Tensor:
    "a rational function plus 2 / pi (log(x) j1(x) - 1 / x) up to 5, then a sum of a sine and a cosine (Cephes)"
    close = x.clamp(max=5.0)
    square = close * close
    series = close * ratio(square, "y1.near")
    near = series + 2 / math.pi * (_j1(close) * close.log() - 1.0 / close)
    return _poles(x, torch.where(x <= 5.0, near, _waves(x.clamp(min=5.0), 1)[1]))


@float_function("aten.special_spherical_bessel_j0", examples=[example("40xf32[-20,20]"), example("5xsi32")])
def spherical_bessel_j0(value: Tensor) -> Tensor:
    "sin(x) / x, 1 at zero and 0 at infinity"
    divisor = torch.where(value == 0.0, 1.0, value)
    quotient = torch.where(value == 0.0, 1.0, value.sin() / divisor)
    return torch.where(value.isinf(), 0.0, quotient)

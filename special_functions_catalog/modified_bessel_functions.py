"""Modified Bessel functions of order 0 and 1.

Chebyshev series of S. L. Moshier, Cephes Math Library (BSD): i0.c, i1.c, k0.c and k1.c, which ATen has too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompose.promotion import float_function
from special_functions_catalog.polynomials import chebyshev_series


def _scaled_i(x: Tensor, order: int) -> Tensor:
    """exp(-x) I(x) of x >= 0: a series of x up to 8, and one of 1 / x times sqrt(1 / x) beyond."""
    close = chebyshev_series(x.clamp(max=8.0) / 2.0 - 2.0, f"i{order}.near") * x**order
    distant = x.clamp(min=8.0)
    return torch.where(x <= 8.0, close, chebyshev_series(32.0 / distant - 2.0, f"i{order}.far") / distant.sqrt())


def _scaled_k(x: Tensor, order: int) -> Tensor:
    """exp(x) K(x): a series and a logarithm up to 2, a series of 1 / x beyond; infinite at 0, NaN left of it."""
    close, distant = x.clamp(max=2.0), x.clamp(min=2.0)
    growth = close.exp()
    bessel = _scaled_i(close, order)
    logarithm = (0.5 * close).log() * (-bessel if order == 0 else bessel)
    series = chebyshev_series(close * close - 2.0, f"k{order}.near") / close**order
    close = (logarithm * growth + series) * growth
    value = torch.where(x <= 2.0, close, chebyshev_series(8.0 / distant - 2.0, f"k{order}.far") / distant.sqrt())
    return torch.where(x == 0.0, math.inf, torch.where(x < 0.0, math.nan, value))


def _grown(x: Tensor, scaled: Tensor) -> Tensor:
    """scaled exp(x), in two steps, so that only what is itself too large overflows; 0 stays 0."""
    half = (0.5 * x).exp()
    return scaled * half * half


@float_function("aten.i0", "aten.special_i0", "aten.special_modified_bessel_i0", examples=[
    example("2x9xf32"), example("40xf32[-85,85]"), example("5xsi32"),
    example("9xf32[-20,20]", op="aten.special_modified_bessel_i0"),
])  # fmt: skip
def i0(x: Tensor) -> Tensor:
    "exp(abs(x)) times Chebyshev series (Cephes)"
    x = x.abs()
    return _grown(x, _scaled_i(x, 0))


@float_function("aten.special_i0e", examples=[example("2x9xf32"), example("40xf32[-85,85]"), example("5xsi32")])
def i0e(x: Tensor) -> Tensor:
    "i0 times exp(-abs(x)): Chebyshev series (Cephes)"
    return _scaled_i(x.abs(), 0)


@float_function("aten.special_i1", "aten.special_modified_bessel_i1", examples=[
    example("2x9xf32"), example("40xf32[-85,85]"), example("5xsi32"),
    example("9xf32[-20,20]", op="aten.special_modified_bessel_i1"),
])  # fmt: skip
def i1(x: Tensor) -> Tensor:
    "exp(abs(x)) times Chebyshev series (Cephes), with the sign of x"
    value = _grown(x.abs(), _scaled_i(x.abs(), 1))
    return torch.where(x < 0.0, -value, value)


@float_function("aten.special_i1e", examples=[example("2x9xf32"), example("40xf32[-85,85]"), example("5xsi32")])
def i1e(x: Tensor) -> Tensor:
    "i1 times exp(-abs(x)): Chebyshev series (Cephes), with the sign of x"
    value = _scaled_i(x.abs(), 1)
    return torch.where(x < 0.0, -value, value)


@float_function("aten.special_modified_bessel_k0", examples=[example("40xf32[0,30]"), example("5xsi32")])
def k0(x: Tensor) -> Tensor:
    "a series minus log(x / 2) i0(x), or exp(-x) times a series (Cephes)"
    return _grown(-x, _scaled_k(x, 0))


@float_function("aten.special_modified_bessel_k1", examples=[example("40xf32[0,30]"), example("5xsi32")])
def k1(x: Tensor) -> Tensor:
    "a series plus log(x / 2) i1(x), or exp(-x) times a series (Cephes)"
    return _grown(-x, _scaled_k(x, 1))


@float_function("aten.special_scaled_modified_bessel_k0", examples=[example("40xf32[0,30]"), example("5xsi32")])
def scaled_k0(value: Tensor) -> Tensor:
    "k0 times exp(x) (Cephes)"
    return _scaled_k(value, 0)


@float_function("aten.special_scaled_modified_bessel_k1", examples=[example("40xf32[0,30]"), example("5xsi32")])
def scaled_k1(value: Tensor) -> Tensor:
    "k1 times exp(x) (Cephes)"
    return _scaled_k(value, 1)

"""The regularized incomplete gamma functions.

Power series and continued fraction: M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions, 6.5.29 and
6.5.31, each by as many terms as float32 needs where it is used. Where the parameter is above 20 and the argument is
near it: N. M. Temme, The asymptotic expansion of the incomplete gamma functions, SIAM J. Math. Anal. 10, 1979.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import example
from patterns_catalog.decompose.promotion import float_function
from special_functions_catalog.polynomials import polynomial

_LARGE = 20.0
"""From here the asymptotic expansion is used, for arguments up to 30 % off."""
_NEAR = 0.3
_TERMS = 64
"""The number of terms of series and continued fraction, for a ratio of at most 1 / 1.3 or parameters up to 20."""
_SMALL_TERMS = 16
"""The number of terms of the series for arguments up to 1.1."""
_TEMME = (
    (
        6.70785354e-09, -1.76659527e-07, 8.29671134e-07, -1.85406221e-06, -2.18544851e-06, 3.91926318e-05,
        -0.000178755144, 0.000352733686, 0.00115740741, -0.0148148148, 0.0833333333, -0.333333333,
    ),
    (
        -5.7525456e-08, 1.37863345e-07, 4.6471278e-09, -1.61209009e-06, 7.64916092e-06, -1.80985503e-05,
        -4.01877572e-07, 0.000205761317, -0.000990226337, 0.00264550265, -0.00347222222, -0.00185185185,
    ),
    (
        -2.04770984e-10, 1.42806142e-07, -6.29899214e-07, 1.37219573e-06, 3.42357873e-08, -1.27606352e-05,
        5.29234488e-05, -0.000107366532, 2.00938786e-06, 0.000771604938, -0.00268132716, 0.00413359788,
    ),
    (
        8.09946491e-08, -1.69584041e-07, -2.78610803e-11, 1.42309007e-06, -5.67495283e-06, 1.10826541e-05,
        -2.39650511e-07, -7.56180167e-05, 0.000267720632, -0.000469189494, 0.000229472094, 0.000649434156,
    ),
)  # fmt: skip
"""For each power of 1 / a, the coefficients of the powers of eta."""


def _log1p_minus(x: Tensor) -> Tensor:
    """log(1 + x) - x of small x, by the series of log(1 + x) in x / (2 + x)."""
    ratio = x / (2.0 + x)
    square = ratio * ratio
    return ratio * (square * polynomial(square, (2 / 15, 2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3)) - x)


def _near_parameter(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Temme's expansion of both functions."""
    a = a.clamp(min=_LARGE)
    offset = ((x - a) / a).clamp(-_NEAR, _NEAR)
    exponent = _log1p_minus(offset)
    eta = (-2.0 * exponent).clamp(min=0.0).sqrt()
    eta = torch.where(offset < 0.0, -eta, eta)
    total = torch.zeros_like(a)
    for coefficients in reversed(_TEMME):
        total = total / a + polynomial(eta, coefficients)
    rest = (a * exponent).exp() * total / (2 * math.pi * a).sqrt()
    argument = eta * (0.5 * a).sqrt()
    return 0.5 * torch.erfc(-argument) - rest, 0.5 * torch.erfc(argument) + rest


def _density(a: Tensor, x: Tensor, lgamma: Tensor) -> Tensor:
    """x^a exp(-x) / gamma(a + 1), for large a by Stirling's formula; `lgamma` is that of a + 1."""
    large = a.clamp(min=_LARGE)
    offset = (x - large) / large
    stirling = (1 / 12 - 1 / (360.0 * large * large)) / large
    far = (large * (offset.log1p() - offset) - stirling).exp() / (2 * math.pi * large).sqrt()
    near = (a * x.log() - x - lgamma).exp()
    return torch.where(a > _LARGE, far, near)


def _series(a: Tensor, x: Tensor) -> Tensor:
    """The lower function divided by the density: the sum of x^n / ((a + 1) ... (a + n))."""
    n = torch.arange(1, _TERMS, dtype=x.dtype, device=x.device)
    return 1.0 + (x.unsqueeze(-1) / (a.unsqueeze(-1) + n)).cumprod(-1).sum(-1)


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The upper function divided by the density, as a continued fraction, from its end."""
    value = x + (2 * _TERMS + 1.0) - a
    for n in range(_TERMS, 0, -1):
        value = (x + (2 * n - 1.0) - a) + n * (a - n) / value
    return a / value


def _upper_of_small(a: Tensor, x: Tensor, lgamma: Tensor) -> Tensor:
    """The upper function for x up to 1.1, without a difference from 1."""
    factor, total = torch.ones_like(x), torch.zeros_like(x)
    for n in range(1, _SMALL_TERMS):
        factor = factor * (x / -n)
        total = total + factor / (a + n)
    power = a * x.log() - lgamma
    return -power.expm1() - a * power.exp() * total


def _functions(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper function, which add up to 1."""
    inner, outer = torch.minimum(x, torch.maximum(a, torch.full_like(a, 1.1))), torch.maximum(x, a).clamp(min=1.1)
    lgamma = torch.lgamma(a + 1.0)
    # the density is needed only where one of the two is x
    density = _density(a, x, lgamma)
    lower_series, fraction = density * _series(a, inner), density * _fraction(a, outer)
    small = _upper_of_small(a, x.clamp(max=1.1), lgamma)
    by_small = (x <= 1.1) & torch.where(x <= 0.5, -0.4 / x.log() >= a, x * 1.1 >= a)
    by_fraction = (x > 1.1) & (x > a)
    upper = torch.where(by_small, small, torch.where(by_fraction, fraction, 1.0 - lower_series))
    lower = torch.where(by_fraction, 1.0 - fraction, lower_series)
    near = (a > _LARGE) & ((x - a).abs() < _NEAR * a)
    lower_near, upper_near = _near_parameter(a, x)
    return torch.where(near, lower_near, lower), torch.where(near, upper_near, upper)


def _limits(a: Tensor, x: Tensor, value: Tensor, at_zero: float) -> Tensor:
    """The values at zeros and infinities; NaN for negative numbers."""
    at_infinity = 1.0 - at_zero
    value = torch.where(x.isinf(), at_infinity, value)
    value = torch.where(a.isinf(), torch.where(x.isinf(), math.nan, at_zero), value)
    value = torch.where(x == 0.0, at_zero, value)
    value = torch.where(a == 0.0, torch.where(x > 0.0, at_infinity, math.nan), value)
    return torch.where((a < 0.0) | (x < 0.0), math.nan, value)


@float_function("aten.igamma", "aten.special_gammainc", examples=[
    example("40xf32[0,9]", "40xf32[0,9]"), example("2x9xf32[15,40]", "9xf32[15,40]"), example("2x9xf32", "9xf32"),
    example("40xf32[0,900]", "40xf32[0,900]"),
])  # fmt: skip
def igamma(a: Tensor, x: Tensor) -> Tensor:
    "the lower one: power series, 1 minus the continued fraction, or Temme's expansion"
    a, x = torch.broadcast_tensors(a, x)
    return _limits(a, x, _functions(a, x)[0], 0.0)


@float_function("aten.igammac", "aten.special_gammaincc", examples=[
    example("40xf32[0,9]", "40xf32[0,9]"), example("2x9xf32[15,40]", "9xf32[15,40]"), example("2x9xf32", "9xf32"),
    example("40xf32[0,900]", "40xf32[0,900]"),
])  # fmt: skip
def igammac(a: Tensor, x: Tensor) -> Tensor:
    "the upper one: continued fraction, 1 minus the power series, or Temme's expansion"
    a, x = torch.broadcast_tensors(a, x)
    return _limits(a, x, _functions(a, x)[1], 1.0)

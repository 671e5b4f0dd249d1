"""The gamma function's logarithm and derivatives, and the Hurwitz zeta function.

From S. L. Moshier, Cephes Math Library (BSD): gamma.c, psi.c and zeta.c, which ATen uses too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from patterns_catalog.decompose.promotion import float_function, in_floats
from special_functions_catalog.polynomials import polynomial, ratio


def _lgamma_of_positive(x: Tensor) -> Tensor:
    far = x.clamp(min=13.0)
    stirling = (far - 0.5) * (far.log() - 1.0) + 0.5 * (math.log(2 * math.pi) - 1.0)
    stirling = stirling + polynomial(1.0 / (far * far), "lgamma.far") / far
    # moved into [2, 3) by gamma(x + 1) = x gamma(x)
    near, factor = x.clamp(max=13.0), torch.ones_like(x)
    for _ in range(11):
        large = near >= 3.0
        near = torch.where(large, near - 1.0, near)
        factor = torch.where(large, factor * near, factor)
    divisor = torch.ones_like(x)
    for _ in range(2):
        small = near < 2.0
        divisor = torch.where(small, divisor * near, divisor)
        near = torch.where(small, near + 1.0, near)
    past = torch.where(x < 2.0, _past_two(x), near - 2.0)
    fraction = past * ratio(past, "lgamma.near")
    return torch.where(x < 13.0, factor.log() - divisor.log() + fraction, stirling)


def _past_two(x: Tensor) -> Tensor:
    """x + 1 - 2 or x + 2 - 2, whichever is in [0, 1), without rounding the sum."""
    return torch.where(x < 1.0, x, x - 1.0)


@float_function("aten.lgamma", "aten.special_gammaln", examples=[
    example("2x9xf32"), example("40xf32[-9,30]"), example("9xsi32[-2,12]"),
])  # fmt: skip
def lgamma(x: Tensor) -> Tensor:
    "log(abs(gamma(x))) (Cephes); of negative x by reflection, log(pi / abs(sin(pi x))) - lgamma(1 - x)"
    negative = x <= 0.0
    positive = _lgamma_of_positive(torch.where(negative, 1.0 - x, x))
    sine = ((x - x.round()) * math.pi).sin().abs()
    value = torch.where(negative, math.log(math.pi) - sine.log() - positive, positive)
    return torch.where(x.isinf() | (negative & (sine == 0.0)), math.inf, value)  # the poles, however far


_DIGAMMA_FAR = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


@float_function("aten.digamma", "aten.special_digamma", "aten.special_psi", examples=[
    example("2x9xf32"), example("40xf32[-9,30]"), example("9xsi32[-2,12]"),
])  # fmt: skip
def digamma(x: Tensor) -> Tensor:
    "the derivative of lgamma: its asymptotic series beyond 10, the recurrence before, reflection for negative x"
    negative = x < 0.0
    positive = torch.where(negative, 1.0 - x, x)
    total = torch.zeros_like(x)
    for _ in range(10):
        small = positive < 10.0
        total = torch.where(small, total - 1.0 / positive, total)
        positive = torch.where(small, positive + 1.0, positive)
    square = 1.0 / (positive * positive)
    total = total + positive.log() - 0.5 / positive - square * polynomial(square, _DIGAMMA_FAR)
    fraction = x - x.round()
    total = torch.where(negative, total - math.pi / (fraction * math.pi).tan(), total)
    total = torch.where(negative & (fraction == 0.0), math.nan, total)
    return torch.where(x == 0.0, -1.0 / x, total)


@decomposition("aten.polygamma", "aten.special_polygamma", examples=[
    example(0, "9xf32"), example(1, "2x9xf32"), example(2, "40xf32[-3,12]"), example(3, "9xf32"),
    example(4, "9xsi32[1,9]"),
])  # fmt: skip
def polygamma(n: int, self: Tensor) -> Tensor:
    "digamma, its derivative the trigamma function, or (-1)^(n + 1) n! zeta(n + 1, x)"
    (x,), result = in_floats(self)
    if n == 0:
        return torch.digamma(self)
    if n == 1:
        return _trigamma(x).to(result)
    return ((-1) ** (n + 1) * float(math.factorial(n)) * torch.special.zeta(float(n + 1), x)).to(result)


def _trigamma(x: Tensor) -> Tensor:
    """The asymptotic series beyond 6, the recurrence before, reflection below 1/2."""
    reflected = x < 0.5
    sine = (x * math.pi).sin()
    positive = torch.where(reflected, 1.0 - x, x)
    total = torch.where(reflected, -(math.pi**2) / (sine * sine), 0.0)
    for _ in range(6):
        total = total + 1.0 / (positive * positive)
        positive = positive + 1.0
    square = 1.0 / (positive * positive)
    series = 1.0 + 0.5 / positive + square * (1 / 6 - square * (1 / 30 - square * (1 / 42)))
    total = total + series / positive
    return torch.where(reflected, -total, total)


_BERNOULLI = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.307674368e12 / 691, 7.47242496e10, -1.067062284288e16 / 3617,
)  # fmt: skip
"""(2k)! / B_2k"""


def _zeta_of_positive(x: Tensor, q: Tensor) -> Tensor:
    """The sum of (q + k)^-x: nine terms and Euler and Maclaurin's formula for the rest."""
    total, place, power = q.pow(-x), q, q
    for _ in range(9):
        place = place + 1.0
        power = place.pow(-x)
        total = total + power
    rest = power * place / (x - 1.0) - 0.5 * power
    term = power / place * x
    for k, divisor in enumerate(_BERNOULLI):
        rest = rest + term / divisor
        term = term * ((x + (2.0 * k + 1.0)) / place) * ((x + (2.0 * k + 2.0)) / place)
    return torch.where(power <= total * 1e-17, total, total + rest)


@float_function(
    "aten.special_zeta", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar",
    examples=[
        example("9xf32[1.1,9]", "2x9xf32[0.1,9]"), example("9xsi32[1,4]", "9xf32[-4,2]"),
        example(3.0, "9xf32", op="aten.special_zeta.self_scalar"),
        example("9xf32[0,5]", 2.0, op="aten.special_zeta.other_scalar"),
    ],
)  # fmt: skip
def zeta(x: Tensor, q: Tensor) -> Tensor:
    """The sum of (q + k)^-x of all k >= 0.

    The terms left of zero are a finite sum, for even x of the same sign as those of -q and else of the other one,
    so they are the difference of two sums that start right of zero.
    """
    x, q = torch.broadcast_tensors(x, q)
    above = q - q.floor()
    left = _zeta_of_positive(x, 1.0 - above) - _zeta_of_positive(x, 1.0 - q.clamp(max=0.0))
    odd = x - 2.0 * (x / 2.0).floor() == 1.0
    negative = q <= 0.0
    total = _zeta_of_positive(x, torch.where(negative, above, q))
    total = torch.where(negative, total + torch.where(odd, -left, left), total)
    pole = (x == 1.0) | (negative & (q == q.floor()) & ~(x < 1.0))
    undefined = (x < 1.0) | (negative & (x != x.floor())) | q.isinf() | (x.isinf() & (q > 1.0))
    return torch.where(pole, math.inf, torch.where(undefined, math.nan, total))

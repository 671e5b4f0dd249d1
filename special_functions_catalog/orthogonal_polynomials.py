"""Orthogonal polynomials of degrees given as numbers or tensors.

Recurrences and closed forms: M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions, 22.7 and 22.3. Degrees
are rounded toward zero; the polynomials of negative ones are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from patcomp.patterns import Rejected, Rule, decomposition, example
from patterns_catalog.decompose.promotion import in_floats

LARGEST = 64
"""The largest degree of those computed by recurrence; they are NaN beyond, where Hermite's overflow in float32."""

_CLOSED_FORM = 8
"""Up to this degree, Chebyshev's polynomials are computed by recurrence too."""


def _recurrence(
    x: Tensor, degree: Tensor, most: int, first: Tensor, following: Callable[[int, Tensor, Tensor], Tensor]
) -> Tensor:
    """The polynomials of degrees up to `most`, and NaN beyond.

    Args:
        first: the polynomial of degree 1.
        following: that of a degree, of the two before.
    """
    before, last = torch.ones_like(x), first
    result = torch.where(degree == 0.0, before, torch.where(degree == 1.0, last, math.nan))
    for k in range(2, most + 1):
        before, last = last, following(k, last, before)
        result = torch.where(degree == float(k), last, result)
    return result


def _chebyshev_form(kind: str, x: Tensor, degree: Tensor) -> Tensor:
    """Ratios of circular functions of n acos(x), or of hyperbolic ones of n acosh(x) beyond 1, the sign by symmetry.

    V(-x) is W(x) and the other way round, but for the sign.
    """
    size = x.abs()
    inside = size < 1.0
    angle = torch.where(inside, size.clamp(max=1.0).acos(), size.clamp(min=1.0).acosh())

    def cosine(factor: Tensor | float) -> Tensor:
        return torch.where(inside, (factor * angle).cos(), (factor * angle).cosh())

    def sine(factor: Tensor | float) -> Tensor:
        return torch.where(inside, (factor * angle).sin(), (factor * angle).sinh())

    def v() -> Tensor:
        return cosine(degree + 0.5) / cosine(0.5)

    def w() -> Tensor:
        return torch.where(size == 1.0, 2.0 * degree + 1.0, sine(degree + 0.5) / sine(0.5))

    if kind == "t":
        value = cosine(degree)
    elif kind == "u":
        value = torch.where(size == 1.0, degree + 1.0, sine(degree + 1.0) / sine(1.0))
    else:
        value = torch.where(x < 0.0, w(), v()) if kind == "v" else torch.where(x < 0.0, v(), w())
    odd = degree - 2.0 * (degree / 2.0).floor() == 1.0
    # of an infinity, PyTorch's recurrence has a difference of infinities
    return torch.where(x.isinf(), math.nan, torch.where(odd & (x < 0.0), -value, value))


def _chebyshev(kind: str, x: Tensor, degree: Tensor) -> Tensor:
    first = {"t": x, "u": 2.0 * x, "v": 2.0 * x - 1.0, "w": 2.0 * x + 1.0}[kind]
    low = _recurrence(x, degree, _CLOSED_FORM, first, lambda _, last, before: 2.0 * x * last - before)
    return torch.where(degree <= float(_CLOSED_FORM), low, _chebyshev_form(kind, x, degree))


_LEFT_OPEN = {
    "NaN": "eager's loops leave NaN with what was in memory",
    "element types": "integers are not in [-1, 1]; high powers of others overflow one way before the other",
}


def _family(name: str, sentence: str, evaluate: Callable[[Tensor, Tensor, int], Tensor]) -> Rule:
    """The op of a family of polynomials with its overloads for a number instead of one of the tensors."""
    op = f"aten.special_{name}"

    @decomposition(
        op, f"{op}.x_scalar", f"{op}.n_scalar", name=f"decompose {name}", doc=sentence,
        unspecified=_LEFT_OPEN, examples=[
            example("2x40xf32", "40xsi32[-1,11]"), example("40xf32[-1,1]", "40xf32[0,30]"),
            example("9xf32[-1,1]", 5, op=f"{op}.n_scalar"), example(0.5, "9xsi32[0,7]", op=f"{op}.x_scalar"),
        ],
    )  # fmt: skip
    def polynomials(x: Tensor | float, n: Tensor | float) -> Tensor:
        (value, degree), result = in_floats(x, n)
        value, degree = torch.broadcast_tensors(value, degree)
        most = LARGEST
        if not isinstance(n, Tensor):
            most = max(int(n), 1)
            if most > LARGEST and "chebyshev" not in name:
                raise Rejected(f"a polynomial of degree {most} is not supported; the largest degree is {LARGEST}")
        degree = degree.trunc()
        total = evaluate(value, degree, most)
        return torch.where((degree >= 0.0) & ~degree.isinf(), total, 0.0).to(result)

    return polynomials


def _chebyshev_family(kind: str, *, shifted: bool) -> Rule:
    def evaluate(x: Tensor, degree: Tensor, most: int) -> Tensor:
        return _chebyshev(kind, 2.0 * x - 1.0 if shifted else x, degree)

    return _family(
        f"{'shifted_' * shifted}chebyshev_polynomial_{kind}",
        f"Chebyshev's of the {dict(zip('tuvw', ('first', 'second', 'third', 'fourth'), strict=True))[kind]} kind"
        f"{' of 2 x - 1' * shifted}: a recurrence up to degree {_CLOSED_FORM}, trigonometric or hyperbolic beyond",
        evaluate,
    )


chebyshev_t, chebyshev_u, chebyshev_v, chebyshev_w = (_chebyshev_family(kind, shifted=False) for kind in "tuvw")
shifted_t, shifted_u, shifted_v, shifted_w = (_chebyshev_family(kind, shifted=True) for kind in "tuvw")


def _recurrent_family(
    name: str, sentence: str, first: Callable[[Tensor], Tensor],
    following: Callable[[Tensor, int, Tensor, Tensor], Tensor],
) -> Rule:  # fmt: skip
    def evaluate(x: Tensor, degree: Tensor, most: int) -> Tensor:
        return _recurrence(x, degree, most, first(x), lambda k, last, before: following(x, k, last, before))

    return _family(name, f"{sentence} up to n = {LARGEST}, NaN beyond", evaluate)


hermite_h = _recurrent_family(
    "hermite_polynomial_h", "Hermite's of physics, H[n] = 2 x H[n - 1] - 2 (n - 1) H[n - 2]",
    lambda x: 2.0 * x, lambda x, k, last, before: 2.0 * x * last - 2.0 * (k - 1) * before,
)  # fmt: skip
hermite_he = _recurrent_family(
    "hermite_polynomial_he", "Hermite's of probability, H[n] = x H[n - 1] - (n - 1) H[n - 2]",
    lambda x: x, lambda x, k, last, before: x * last - float(k - 1) * before,
)  # fmt: skip
laguerre = _recurrent_family(
    "laguerre_polynomial_l", "Laguerre's, n L[n] = (2 n - 1 - x) L[n - 1] - (n - 1) L[n - 2]",
    lambda x: 1.0 - x, lambda x, k, last, before: ((2.0 * k - 1.0 - x) * last - float(k - 1) * before) / float(k),
)  # fmt: skip
legendre = _recurrent_family(
    "legendre_polynomial_p", "Legendre's, n P[n] = (2 n - 1) x P[n - 1] - (n - 1) P[n - 2]",
    lambda x: x, lambda x, k, last, before: ((2.0 * k - 1.0) * x * last - float(k - 1) * before) / float(k),
)  # fmt: skip

"""Exponentials and logarithms in other bases, and those that are exact near zero.

Half precision is computed in float32, as PyTorch does.
"""

from __future__ import annotations

import math

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patterns_catalog.lower.rows import Build, row


def _divided_or_one(c: Coreai, x: Value, y: Value, where: Value) -> Value:
    """x / y, or 1 where the condition holds."""
    one = c.constant(1.0, x.element_type)
    return c.broadcasting_divide(c.broadcasting_where(where, one, x), c.broadcasting_where(where, one, y))


def _log1p(c: Coreai, x: Value) -> Value:
    """log(u) * x / (u - 1) with u = 1 + x rounded: exact to the last digits for small x too (Kahan).

    Where u - 1 is x, infinities included, the quotient is 1; where u is 1, the result is x. (D. Goldberg, What Every
    Computer Scientist Should Know About Floating-Point Arithmetic, 1991, theorem 4.)
    """
    shifted = c.broadcasting_add(x, 1.0)
    # the runtime makes x of (x + 1) - 1; the maximum keeps it from that, and where it matters the log is NaN
    back = c.broadcasting_sub(c.broadcasting_maximum(shifted, 0.0), 1.0)
    unchanged = c.broadcasting_equal(shifted, 1.0)
    exact = c.broadcasting_or(c.broadcasting_equal(back, x), unchanged)
    quotient = _divided_or_one(c, x, back, exact)
    return c.broadcasting_where(unchanged, x, c.broadcasting_mul(c.log(shifted), quotient))


def _expm1(c: Coreai, x: Value) -> Value:
    """(u - 1) * x / log(u) with u = exp(x) rounded: exact to the last digits for small x too (Kahan).

    Where u is 1, the result is x. Away from zero, where u - 1 loses nothing, it is u - 1. (N. J. Higham, Accuracy
    and Stability of Numerical Algorithms, 2002, section 1.14.1.)
    """
    power = c.exp(x)
    difference = c.broadcasting_sub(power, 1.0)
    unchanged = c.broadcasting_equal(power, 1.0)
    near = c.broadcasting_greater(1.0, c.abs_(x))
    plain = c.broadcasting_or(unchanged, c.not_(near))
    product = c.broadcasting_mul(difference, _divided_or_one(c, x, c.log(power), plain))
    return c.broadcasting_where(unchanged, x, product)


def _logarithm(base: float) -> Build:
    def logarithm(c: Coreai, x: Value) -> Value:
        quotient = c.broadcasting_mul(c.log(x), 1.0 / math.log(base))
        whole = c.round_(quotient)
        power = c.broadcasting_pow(c.constant(base, x.element_type), whole)
        return c.broadcasting_where(c.broadcasting_equal(power, x), whole, quotient)

    return logarithm


_LOGARITHM = "log(x) / log(base), rounded where that gives exactly x as a power"
_ROWS: dict[str, tuple[Build, str, list[str]]] = {
    "log1p": (_log1p, "log(1 + x), to the last digits for small x", ["2x3xf32[-0.9,4]", "2x3xf32[-0.0001,0.0001]"]),
    "expm1": (_expm1, "exp(x) - 1, to the last digits for small x", ["2x9xf32[-3,3]", "2x9xf32[-0.0001,0.0001]"]),
    "exp2": (lambda c, x: c.broadcasting_pow(c.constant(2.0, x.element_type), x), "2 ** x", ["2x3xf32"]),
    "log2": (_logarithm(2.0), _LOGARITHM, ["2x3xf32[0.1,9]"]),
    "log10": (_logarithm(10.0), _LOGARITHM, ["2x3xf32[0.1,99]"]),
}
exponentials = [
    row(name, formula, *examples, computed="in 32 bits", doc=doc) for name, (formula, doc, examples) in _ROWS.items()
]

"""Rounding, remainders and signs; `coreai` has `round`, `floor_divide` and `modulo`."""

from __future__ import annotations

from typing import Any

from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering

_EXAMPLES = [example("2x9xf32[-4,4]"), example("4xsi32[-3,3]")]


@lowering("aten.floor", examples=_EXAMPLES)
def floor(op: OpView, c: Any) -> Value:
    "the rounded value, less one where that is greater (`floor_divide` would lose infinities); integers stay"
    x = op["self"]
    if not is_float(x.element_type):
        return x
    rounded = c.round_(x)
    return c.broadcasting_sub(rounded, c.cast(c.broadcasting_greater(rounded, x), x.element_type))


@lowering("aten.ceil", examples=_EXAMPLES)
def ceil(op: OpView, c: Any) -> Value:
    "the rounded value, plus one where that is less"
    x = op["self"]
    if not is_float(x.element_type):
        return x
    rounded = c.round_(x)
    return c.broadcasting_add(rounded, c.cast(c.broadcasting_greater(x, rounded), x.element_type))


@lowering("aten.sign", examples=_EXAMPLES)
def sign(op: OpView, c: Any) -> Value:
    "(x > 0) - (x < 0), so that NaN gives 0"
    x = op["self"]
    if x.dtype == "i1":
        return x
    positive = c.cast(c.broadcasting_greater(x, 0), x.element_type)
    return positive if x.dtype[0] == "u" else c.broadcasting_sub(positive, c.cast(_negative(c, x), x.element_type))


def _negative(c: Any, x: Value) -> Value:
    return c.broadcasting_greater(c.constant(0, x.element_type), x)


@lowering("aten.fmod.Tensor", examples=[
    example("2x9xf32[-9,9]", "9xf32[0.5,3]"), example("9xsi32[-9,9]", "9xsi32[1,4]"),
])  # fmt: skip
def fmod(op: OpView, c: Any) -> Value:
    "the remainder with the sign of the dividend"
    x, y = op["self"], op.other
    op.expect(x.dtype == y.dtype and x.dtype != "i1", "fmod of bools or of different dtypes")
    return c.broadcasting_modulo(x, y)


@lowering(
    "aten.log1p", examples=[example("2x3xf32[-0.9,4]"), example("2x3xf32[-0.0001,0.0001]"), example("4xsi32[0,9]")]
)
def log1p(op: OpView, c: Any) -> Value:
    """log(u) * x / (u - 1) with u = 1 + x rounded: exact to the last digits for small x too (Kahan).

    Where u - 1 is x, infinities included, the quotient is 1; where u is 1, the result is x.
    """
    element = op.result.element_type
    x = c.cast(op["self"], element)
    one = c.constant(1.0, element)
    shifted = c.broadcasting_add(x, one)
    back = c.broadcasting_sub(shifted, one)
    unchanged = c.broadcasting_equal(shifted, one)
    exact = c.broadcasting_or(c.broadcasting_equal(back, x), unchanged)
    quotient = c.broadcasting_divide(c.broadcasting_where(exact, one, x), c.broadcasting_where(exact, one, back))
    return c.broadcasting_where(unchanged, x, c.broadcasting_mul(c.log(shifted), quotient))

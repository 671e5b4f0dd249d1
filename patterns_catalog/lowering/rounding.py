"""Rounding and signs; `coreai` has `round`."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering

_EXAMPLES = [example("2x9xf32[-4,4]"), example("4xsi32[-3,3]")]


def rounded_down(c: Coreai, x: Value) -> Value:
    """The rounded value, less one where that is greater; `floor_divide` would lose infinities."""
    rounded = c.round_(x)
    return c.broadcasting_where(c.broadcasting_greater(rounded, x), c.broadcasting_sub(rounded, 1.0), rounded)


def _negated(c: Coreai, x: Value) -> Value:
    return c.broadcasting_mul(x, -1.0)


def without_fraction(c: Coreai, x: Value) -> Value:
    """Rounded toward zero; the sign of `x` stays with a zero."""
    whole = rounded_down(c, c.abs_(x))
    signed = c.broadcasting_where(c.broadcasting_greater(0.0, x), _negated(c, whole), whole)
    return c.broadcasting_where(c.broadcasting_equal(whole, 0.0), c.broadcasting_mul(x, 0.0), signed)


@lowering("aten.floor", examples=_EXAMPLES)
def floor(op: OpView, c: Coreai) -> Value:
    "the rounded value, less one where that is greater; integers stay"
    x = op["self"]
    return rounded_down(c, x) if is_float(x.element_type) else x


@lowering("aten.ceil", examples=_EXAMPLES)
def ceil(op: OpView, c: Coreai) -> Value:
    "-floor(-x), which keeps the sign of a zero; integers stay"
    x = op["self"]
    return _negated(c, rounded_down(c, _negated(c, x))) if is_float(x.element_type) else x


@lowering("aten.trunc", examples=_EXAMPLES)
def trunc(op: OpView, c: Coreai) -> Value:
    "floor(abs(x)) with the sign of x; integers stay"
    x = op["self"]
    return without_fraction(c, x) if is_float(x.element_type) else x


@lowering("aten.round", examples=_EXAMPLES)
def round_half_to_even(op: OpView, c: Coreai) -> Value:
    "to the nearest integer, halves to the even one; integers stay"
    x = op["self"]
    return c.round_(x) if is_float(x.element_type) else x


@lowering("aten.sign", examples=_EXAMPLES)
def sign(op: OpView, c: Coreai) -> Value:
    "(x > 0) - (x < 0), so that NaN gives 0"
    x = op["self"]
    if x.dtype == "i1":
        return x
    positive = c.cast(c.broadcasting_greater(x, 0), x.element_type)
    if x.dtype[0] == "u":
        return positive
    return c.broadcasting_sub(positive, c.cast(c.broadcasting_greater(0, x), x.element_type))

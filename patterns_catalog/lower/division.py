"""Rounded quotients and remainders. After normalize, both sides have one element type.

A divisor of zero among integers is an error in PyTorch and the end of the process on the runtime. Where it is known
only at run time, it counts as one here. The smallest integer divided by -1 wraps in PyTorch and ends the process, too,
so a divisor of -1 is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.rounding import rounded_down, without_fraction
from patterns_catalog.recover.normalization import compute_type

_FLOATS = example("2x9xf32[-9,9]", "9xf32[0.5,3]")
_INTEGERS = example("9xsi32[-9,9]", "9xsi32[-4,-1]")


def _operands(op: OpView, c: Coreai) -> tuple[Value, Value]:
    x, y = op["self"], op.other
    op.expect(x.dtype == y.dtype and x.dtype != "i1", "both operands of a division must have the same dtype, not bool")
    if is_float(x.element_type):
        return x, y
    constant = y.constant
    op.expect(constant is None or bool(constant.all()), "an integer is divided by the constant zero")
    return x, y if constant is not None else c.broadcasting_where(c.broadcasting_equal(y, 0), 1, y)


def _minus_one(c: Coreai, y: Value) -> Value | None:
    """Where an integer divisor is -1; None if it never is."""
    if is_float(y.element_type) or y.dtype[0] == "u" or (y.constant is not None and not (y.constant == -1).any()):
        return None
    return c.broadcasting_equal(y, -1)


def _remainder_operands(op: OpView, c: Coreai) -> tuple[Value, Value]:
    """Dividing by 1 leaves the same remainder as by -1."""
    x, y = _operands(op, c)
    minus_one = _minus_one(c, y)
    return x, y if minus_one is None else c.broadcasting_where(minus_one, 1, y)


def _floored_remainder(c: Coreai, x: Value, y: Value) -> tuple[Value, Value]:
    """The remainder with the sign of the dividend, and whether the divisor has the other sign."""
    rest = c.broadcasting_modulo(x, y)
    signs_differ = c.broadcasting_xor(c.broadcasting_greater(0, rest), c.broadcasting_greater(0, y))
    return rest, c.broadcasting_and(c.broadcasting_not_equal(rest, 0), signs_differ)


@lowering("aten.fmod.Tensor", examples=[_FLOATS, _INTEGERS])
def fmod(op: OpView, c: Coreai) -> Value:
    "the remainder with the sign of the dividend"
    return c.broadcasting_modulo(*_remainder_operands(op, c))


@lowering("aten.remainder.Tensor", examples=[_FLOATS, _INTEGERS])
def remainder(op: OpView, c: Coreai) -> Value:
    "the remainder with the sign of the divisor: that of the dividend, plus the divisor where their signs differ"
    x, y = _remainder_operands(op, c)
    rest, differs = _floored_remainder(c, x, y)
    return c.broadcasting_where(differs, c.broadcasting_add(rest, y), rest)


@lowering("aten.div.Tensor_mode", examples=[
    example("2x9xf32[-9,9]", "9xf32[0.5,3]", rounding_mode="floor"),
    example("2x9xf32[-9,9]", "9xf32[0.5,3]", rounding_mode="trunc"),
    example("9xsi32[-9,9]", "9xsi32[-4,-1]", rounding_mode="floor"),
    example("9xsi32[-9,9]", "9xsi32[-4,-1]", rounding_mode="trunc"),
])  # fmt: skip
def rounded_division(op: OpView, c: Coreai) -> Value:
    "the quotient without its fraction or rounded down"
    x, y = _operands(op, c)
    floors = op.rounding_mode == "floor"
    if not is_float(x.element_type):
        return _integer_quotient(c, x, y, c.broadcasting_floor_divide if floors else c.broadcasting_divide)
    element, wide = x.element_type, compute_type(x)  # in half precision, a rounded quotient can be the next integer
    x, y = c.cast(x, wide), c.cast(y, wide)
    return c.cast(_floor_divided(c, x, y) if floors else without_fraction(c, c.broadcasting_divide(x, y)), element)


def _integer_quotient(c: Coreai, x: Value, y: Value, divide: Callable[..., Value]) -> Value:
    minus_one = _minus_one(c, y)
    if minus_one is None:
        return divide(x, y)
    quotient = divide(x, c.broadcasting_where(minus_one, 1, y))
    return c.broadcasting_where(minus_one, c.broadcasting_mul(quotient, -1), quotient)


def _floor_divided(c: Coreai, x: Value, y: Value) -> Value:
    """Python's floor division of floats, by way of the exact remainder (`float_floor_div` of CPython)."""
    plain = c.broadcasting_divide(x, y)
    rest, differs = _floored_remainder(c, x, y)
    whole = c.broadcasting_divide(c.broadcasting_sub(x, rest), y)
    whole = c.broadcasting_where(differs, c.broadcasting_sub(whole, 1.0), whole)
    down = rounded_down(c, whole)
    near = c.broadcasting_greater(c.broadcasting_sub(whole, down), 0.5)
    down = c.broadcasting_where(near, c.broadcasting_add(down, 1.0), down)
    signed_zero = c.broadcasting_mul(plain, 0.0)
    down = c.broadcasting_where(c.broadcasting_equal(whole, 0.0), signed_zero, down)
    return c.broadcasting_where(c.broadcasting_equal(y, 0.0), plain, down)

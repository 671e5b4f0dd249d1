"""Rounded quotients and remainders. After normalize, both sides have one element type.

A divisor of zero among integers is an error in PyTorch and the end of the process on the runtime. Where it is known
only at run time, it counts as one here. The smallest integer divided by -1 wraps in PyTorch and ends the process, too,
so a divisor of -1 is replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Example, Rule, example, formula
from patcomp.patterns.conditions import condition, is_floating
from patcomp.patterns.expressions import Expression
from patterns_catalog.composites.norms import compute_type
from patterns_catalog.lower.rounding import rounded_down, without_fraction

_Quotient = Callable[[Coreai, Value, Value], Value]

_FLOATS = example("2x9xf32[-9,9]", "9xf32[0.5,3]")
_INTEGERS = example("9xsi32[-9,9]", "9xsi32[-4,-1]")


@condition("no constant integer of {y} is zero")
def _is_divisor(y: Value) -> bool:
    return is_float(y.element_type) or y.constant is None or bool(y.constant.all())


def _divides(self: Capture, other: Capture) -> list[Expression]:
    same = (self.dtype == other.dtype) & (self.dtype != "i1")
    return [
        same.says("both operands of a division must have the same dtype, not bool"),
        _is_divisor(other).says("an integer is divided by the constant zero"),
    ]


def _divisor(c: Coreai, y: Value) -> Value:
    """An integer divisor that is known only at run time without its zeros."""
    if is_float(y.element_type) or y.constant is not None:
        return y
    return c.broadcasting_where(c.broadcasting_equal(y, 0), 1, y)


def _minus_one(c: Coreai, y: Value) -> Value | None:
    """Where an integer divisor is -1; None if it never is."""
    if is_float(y.element_type) or y.dtype[0] == "u" or (y.constant is not None and not (y.constant == -1).any()):
        return None
    return c.broadcasting_equal(y, -1)


def _divisor_of_remainder(c: Coreai, y: Value) -> Value:
    """Dividing by 1 leaves the same remainder as by -1."""
    y = _divisor(c, y)
    minus_one = _minus_one(c, y)
    return y if minus_one is None else c.broadcasting_where(minus_one, 1, y)


def _floored_remainder(c: Coreai, x: Value, y: Value) -> tuple[Value, Value]:
    """The remainder with the sign of the dividend, and whether the divisor has the other sign."""
    rest = c.broadcasting_modulo(x, y)
    signs_differ = c.broadcasting_xor(c.broadcasting_greater(0, rest), c.broadcasting_greater(0, y))
    return rest, c.broadcasting_and(c.broadcasting_not_equal(rest, 0), signs_differ)


@formula("lower", "aten.fmod.Tensor", where=_divides, examples=[_FLOATS, _INTEGERS])
def fmod(c: Coreai, self: Value, other: Value) -> Value:
    "the remainder with the sign of the dividend"
    return c.broadcasting_modulo(self, _divisor_of_remainder(c, other))


@formula("lower", "aten.remainder.Tensor", where=_divides, examples=[_FLOATS, _INTEGERS])
def remainder(c: Coreai, self: Value, other: Value) -> Value:
    "the remainder with the sign of the divisor: that of the dividend, plus the divisor where their signs differ"
    y = _divisor_of_remainder(c, other)
    rest, differs = _floored_remainder(c, self, y)
    return c.broadcasting_where(differs, c.broadcasting_add(rest, y), rest)


def _truncated(c: Coreai, x: Value, y: Value) -> Value:
    return without_fraction(c, c.broadcasting_divide(x, y))


def _of_integers(c: Coreai, x: Value, y: Value, divide: Callable[..., Value]) -> Value:
    y = _divisor(c, y)
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


def _rounded_division(mode: str, kind: str, given: Example, divide: _Quotient) -> Rule:
    return formula(
        "lower", "aten.div.Tensor_mode", name=f"div.{mode} of {kind}", doc="the rounded quotient",
        where=lambda self, other, rounding_mode: [
            rounding_mode == mode, is_floating(self) == (kind == "floats"), *_divides(self, other),
        ], examples=[replace(given, kwargs={"rounding_mode": mode})],
    )(lambda c, self, other: divide(c, self, other))  # fmt: skip


def _in_float32(c: Coreai, x: Value, y: Value, divide: _Quotient) -> Value:
    """In half precision, a rounded quotient can be the next integer."""
    wide = compute_type(x)
    return c.cast(divide(c, c.cast(x, wide), c.cast(y, wide)), x.element_type)


rounded_quotients = [
    _rounded_division("floor", "floats", _FLOATS, lambda c, x, y: _in_float32(c, x, y, _floor_divided)),
    _rounded_division("trunc", "floats", _FLOATS, lambda c, x, y: _in_float32(c, x, y, _truncated)),
    _rounded_division(
        "floor", "integers", _INTEGERS, lambda c, x, y: _of_integers(c, x, y, c.broadcasting_floor_divide)
    ),
    _rounded_division("trunc", "integers", _INTEGERS, lambda c, x, y: _of_integers(c, x, y, c.broadcasting_divide)),
]

"""Which roundings of float64 an op passes on, and which it may enlarge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patcomp.ir import aten, tensor
from patcomp.ir.types import element_type
from patcomp.ir.value import Value
from patcomp.narrowing.analysis import NarrowingFacts, Ranges
from patcomp.narrowing.widths import Widths
from tests.helpers.programs import program
from tests.helpers.ranged_ops import overload

# ---- floats --------------------------------------------------------------------------------------

EXACT = "abs alias clone contiguous detach neg relu sign"
"""Ops that neither round nor enlarge the error of a rounded operand."""
DECISIONS = "ceil floor logical_not round trunc"
ROUNDING = "reciprocal rsqrt sqrt"
"""Ops that round once and keep a relative error as it is."""
FUNCTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf exp exp2 expm1 log log10 log1p log2 sigmoid sin sinh tan tanh"
)
OTHERS = "erfc lgamma digamma"
Found = tuple[bool, bool, bool, bool]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, (False, False, False, True)) for name in EXACT.split()),
        *((name, (False, True, False, False)) for name in DECISIONS.split()),
        *((name, (False, False, True, True)) for name in ROUNDING.split()),
        *((name, (False, True, True, True)) for name in FUNCTIONS.split()),
        *((name, (True, True, True, True)) for name in OTHERS.split()),
    ],
)
def test_roundings_of_one_operand(name: str, expected: Found) -> None:
    assert roundings(lambda x: called_on_floats(name, x)) == expected


def called_on_floats(name: str, *operands: Any, result: str = "f64", **more: Any) -> Value:
    schema = [argument.name for argument in overload(name)._schema.arguments]
    element = "i1" if name == "logical_not" else result
    return aten.build(f"aten.{name}", tensor((4,), element), **dict(zip(schema, operands, strict=False)), **more)


def roundings(function: Callable[[Value], Value]) -> Found:
    """Whether a function is named for an exact operand and for a rounded one; whether its result is rounded then."""
    named, rounded = [], []
    for element in ("f32", "f64"):
        results: list[Value] = []

        def body(x: Value, results: list[Value] = results) -> Value:
            if x.dtype == "f32":
                x = aten.build("aten._to_copy", tensor((4,), "f64"), self=x, dtype=element_type("f64"))
            results.append(function(x))
            return results[0]

        module = program({"x": f"4x{element}"}, body)
        ranges = Ranges(NarrowingFacts(module, Widths()), {})
        named.append(any(is_float for _, is_float in ranges.changes))
        rounded.append(ranges.known[results[0].ssa].rounded)
    return (*named, *rounded)  # type: ignore[return-value]


def square(x: Value) -> Value:
    return called_on_floats("mul.Tensor", x, x)


def below_zero(x: Value) -> Value:
    return called_on_floats("neg", square(x))


PAIRS: dict[str, tuple[Callable[[Value], Value], Found]] = {
    "a sum that may cancel": (lambda x: called_on_floats("add.Tensor", x, x, alpha=1), (False, True, True, True)),
    "a sum of squares": (
        lambda x: called_on_floats("add.Tensor", square(x), square(x), alpha=1),
        (False, False, True, True),
    ),
    "a sum below zero": (
        lambda x: called_on_floats("add.Tensor", below_zero(x), below_zero(x), alpha=1),
        (False, False, True, True),
    ),
    "a sum of both signs": (
        lambda x: called_on_floats("add.Tensor", below_zero(x), square(x), alpha=1),
        (True, True, True, True),
    ),
    "a difference of squares": (
        lambda x: called_on_floats("sub.Tensor", square(x), square(x), alpha=1),
        (True, True, True, True),
    ),
    "a difference of both signs": (
        lambda x: called_on_floats("sub.Tensor", square(x), below_zero(x), alpha=1),
        (False, False, True, True),
    ),
    "a sum with a rounded number": (lambda x: called_on_floats("add.Scalar", x, 0.1), (True, True, True, True)),
    "a sum with an exact number": (lambda x: called_on_floats("add.Scalar", x, 0.5), (False, True, True, True)),
    "a sum with an integer": (lambda x: called_on_floats("add.Scalar", x, 3), (False, True, True, True)),
    "a sum below one": (
        lambda x: called_on_floats("add.Tensor", below_zero(x), called_on_floats("sin", x), alpha=1),
        (True, True, True, True),
    ),
    "a sum that begins below one": (
        lambda x: called_on_floats("add.Tensor", called_on_floats("sin", x), below_zero(x), alpha=1),
        (True, True, True, True),
    ),
    "a positive sum with a number": (
        lambda x: called_on_floats("add.Scalar", square(x), 0.1),
        (False, False, True, True),
    ),
    "a maximum": (lambda x: called_on_floats("maximum", x, square(x)), (False, False, True, True)),
    "a comparison": (lambda x: called_on_floats("lt.Scalar", x, 0.5, result="i1"), (False, True, False, False)),
    "a comparison with a rounded number": (
        lambda x: called_on_floats("lt.Scalar", x, 0.1, result="i1"),
        (True, True, False, False),
    ),
    "a cast to float32": (
        lambda x: called_on_floats("_to_copy", x, result="f32", dtype=element_type("f32")),
        (False, False, False, False),
    ),
    "a cast to unsigned integers": (
        lambda x: called_on_floats("_to_copy", x, result="ui8", dtype=element_type("ui8")),
        (False, True, False, False),
    ),
    "a cast to integers": (
        lambda x: called_on_floats("_to_copy", x, result="si32", dtype=element_type("si32")),
        (False, True, False, False),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_roundings(name: str) -> None:
    function, expected = PAIRS[name]
    assert roundings(function) == expected

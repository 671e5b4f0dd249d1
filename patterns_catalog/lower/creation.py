"""Fills and ranges, which are constants if the shape is static."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.types import element_name, is_integer
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Example, OpView, Rejected, Rule, example, formula, lowering
from patterns_catalog.lower.casts import BY_RESULT
from patterns_catalog.lower.rounding import rounded_down
from patterns_catalog.numbers import exact_fill
from patterns_catalog.sizes import sizes_of, wanted_sizes

_MOST = 2**28
"""The elements that a constant may have that a rule makes."""


def _filled(c: Coreai, result: ValueType, value: Any, sizes: Sequence[Any]) -> Value:
    element, shape = result.element_type, wanted_sizes(result.shape, sizes)
    scalar = c.cast(value if isinstance(value, Value) else c.constant(exact_fill(value, element), element), element)
    return c.broadcast_to(scalar, shape) if shape else scalar


@formula("lower", "aten.full", ignored=BY_RESULT, examples=[example([2, 3], 0.5), example([2], 3, dtype="si64")])
def full(c: Coreai, size: list[Any], fill_value: Any, result: ValueType) -> Value:
    "one number in every element"
    return _filled(c, result, fill_value, size)


scalar_tensor = formula(
    "lower", "aten.scalar_tensor", ignored=BY_RESULT, name="scalar_tensor", examples=[example(True, dtype="i1")],
    doc="a number that normalize has not made a constant, because it is a boolean or a size, or does not fit",
)(lambda c, s, result: _filled(c, result, s, ()))  # fmt: skip


def _overwritten(torch: Any, x: Any) -> Any:
    return torch.where(x == x, x, torch.empty_permuted([2, 3], [1, 0]))


@formula(
    "lower", "aten.empty_permuted", ignored=BY_RESULT | {"physical_layout": "the result type has no order in memory"},
    unspecified={"NaN": "the program of the example returns numbers that it has not written where an input is NaN"},
    examples=[example("2x3xf32", program=_overwritten)],
)  # fmt: skip
def empty_permuted(c: Coreai, size: list[Any], result: ValueType) -> Value:
    "zeros, as good as any numbers: programs that are defined overwrite them"
    return _filled(c, result, 0, size)


@formula(
    "lower", "aten.full_like", ignored=BY_RESULT,
    examples=[example("2x3xf32", -1.5), example("2xsi32", True, dtype="i1")],
)  # fmt: skip
def full_like(c: Coreai, self: Value, fill_value: Any, result: ValueType) -> Value:
    "one number in the shape and type of the result"
    return _filled(c, result, fill_value, sizes_of(c, self))


@lowering("aten.arange.start_step", examples=[example(0, 5), example(1, 2, 0.3), example(9, 0, -2, dtype="f32")])
def arange(op: OpView, c: Coreai) -> Value:
    """start + i * step, computed in 64 bits and rounded once, as PyTorch does.

    A range of integers starts and steps by whole numbers; only its length is that of the fractions.
    """
    op.ignore("dtype", because="the result type has it")
    start, end, step = op.start, op.end, op.step
    element = op.result.element_type
    if any(isinstance(number, Value) for number in (start, end, step)):
        numbers = (start, end, step)
        whole = all(is_integer(n.element_type) if isinstance(n, Value) else isinstance(n, int) for n in numbers)
        if not whole and not is_integer(element):
            return _fractions(op, c, *numbers)
        made = c.range(*(c.reshape(c.cast(n, "si32"), []) if isinstance(n, Value) else n for n in numbers))
        return c.cast(made, element)
    op.expect(None not in op.result.shape, "the length of a range with constant bounds must be static")
    _expect_storable(op.result.static_shape[0])
    if is_integer(element):
        start, step = int(start), int(step)
    values = np.asarray(start) + np.arange(op.result.static_shape[0]) * np.asarray(step)
    if element_name(element) != "bf16":
        dtype = numpy_dtype(element)
        op.expect(dtype is not None, f"a range of {element_name(element)} elements is not supported")
        values = values.astype(dtype)
    return c.constant(values, element)


def _expect_storable(elements: int) -> None:
    """Refuse a constant that would take gigabytes to make."""
    if elements > _MOST:
        raise Rejected(f"the tensor has {elements:,} elements, and a stored constant may have {_MOST:,}")


def _fractions(op: OpView, c: Coreai, *numbers: Any) -> Value:
    """A range of fractions, computed in 64 bits like PyTorch's. Its length follows from integers known at run time."""
    sizes = [number for number in numbers if isinstance(number, Value)]
    op.expect(
        all(is_integer(size.element_type) for size in sizes),
        "a bound of arange is a float known only at run time; compute the bounds from integers, or fix the sizes",
    )
    start, end, step = (
        c.cast(c.reshape(number, []), "f64") if isinstance(number, Value) else c.constant(float(number), "f64")
        for number in numbers
    )
    below = rounded_down(c, c.broadcasting_divide(c.broadcasting_sub(start, end), step))
    count = c.cast(c.broadcasting_mul(below, -1.0), "si32")
    places = c.cast(c.range(0, count, 1), "f64")
    return c.cast(c.broadcasting_add(start, c.broadcasting_mul(places, step)), op.result.element_type)


def _triangle_indices(name: str, triangle: Callable[..., Any], *examples: Example) -> Rule:
    @formula("lower", f"aten.{name}", name=name, ignored=BY_RESULT, examples=examples)
    def rule(c: Coreai, row: int, col: int, offset: int, result: ValueType) -> Value:
        "rows and columns of the elements below or above a diagonal, row by row"
        _expect_storable(row * col)
        places = np.nonzero(triangle(np.ones((row, col), bool), offset))
        return c.constant(np.stack(places).astype(numpy_dtype(result.element_type)), result.element_type)

    return rule


tril_indices = _triangle_indices("tril_indices", np.tril, example(3, 4, 1))
triu_indices = _triangle_indices("triu_indices", np.triu, example(3, 4, -1, dtype="si32"))

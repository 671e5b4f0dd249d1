"""Positions of the largest values."""

from __future__ import annotations

from typing import Any

from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lowering.shapes import slice_axis


@lowering("aten.argmax", examples=[
    example("2x5xf32", 1), example("2x5xf32", -2, True), example("2x5xf32"), example("2x9xsi32[0,3]", 1),
])  # fmt: skip
def argmax(op: OpView, c: Any) -> Value:
    "the first of equals, and the first NaN where there is one; over the flat tensor without a dimension"
    x = op["self"]
    op.expect(x.is_static, "argmax of a dynamic shape")
    op.ignore("keepdim", because="the result type has the rank")
    flat = op.dim is None or x.rank == 0
    axis = 0 if flat else op.dim % x.rank
    x = c.reshape(x, [-1]) if flat else x
    position = c.cast(c.argmax(x, axis), op.result.element_type)
    if is_float(x.element_type):
        unordered = _is_nan(c, x)
        first = c.cast(c.argmax(c.cast(unordered, "si32"), axis), op.result.element_type)
        position = c.broadcasting_where(c.any_(unordered, [axis]), first, position)
    return c.reshape(position, list(op.result.static_shape))


def _is_nan(c: Any, x: Value) -> Value:
    return c.broadcasting_not_equal(x, x)


@lowering("aten.topk", examples=[
    example("2x9xf32", 3), example("2x9x2xf32", 4, 1, False), example("9xsi32[-99,99]", 9), example("f32", 1),
])  # fmt: skip
def topk(op: OpView, c: Any) -> list[Value]:
    """The first `k` of a stable sort; which of equals come first PyTorch leaves open.

    NaN counts as larger than infinity, so floats are sorted as if NaN were that, and then by being NaN.
    """
    x = op["self"]
    op.ignore("sorted", because="any order will do where it is False")
    op.ignore("k", because="the result type has it")
    positions = op.results[1].element_type
    if x.rank == 0:
        op.ignore("dim", "largest", because="a 0-d tensor has one value")
        return [x, c.constant(0, positions)]
    axis = op.dim % x.rank
    op.expect(x.is_static, "topk of a dynamic shape")
    order = order_of(c, x, axis, op.largest)
    order = slice_axis(c, order, axis, 0, op.result.static_shape[axis])
    return [c.gather_along_axis(x, order, axis), c.cast(order, positions)]


def order_of(c: Any, x: Value, axis: int, descending: bool) -> Value:
    """The positions that sort an axis, equal values in their order; NaN counts as larger than infinity."""
    if not is_float(x.element_type):
        return c.argsort(x, axis, descending, True)
    unordered = _is_nan(c, x)
    infinity = c.constant(float("inf"), x.element_type)
    by_value = c.argsort(c.broadcasting_where(unordered, infinity, x), axis, descending, True)
    sorted_unordered = c.gather_along_axis(c.cast(unordered, "si32"), by_value, axis)
    return c.gather_along_axis(by_value, c.argsort(sorted_unordered, axis, descending, True), axis)

"""Scatters along a dimension, and advanced indexing that writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, formula, lowering
from patcomp.patterns.conditions import has_no_elements
from patterns_catalog.lower.casts import convert
from patterns_catalog.lower.combining import combine, filled
from patterns_catalog.lower.ranges import put_range
from patterns_catalog.lower.shapes import axes_in_order, broadcast_together, expanded
from patterns_catalog.numbers import exact_fill
from patterns_catalog.sizes import as_index, broadcast_sizes, product, size_of, sizes_of, typed

_HOW = {None: "update", "add": "sum", "multiply": "prod"}
"""What is done at a place, by the argument `reduce`."""


@formula("lower", "aten.scatter.src", "aten.scatter.reduce", examples=[
    example("4x5xf32", 1, "3x2xsi64[0,0]", "3x4xf32"), example("f32", 0, "si64[0,0]", "f32"),
    example("4x5xf32", 0, "3x2xsi64[0,3]", "3x4xf32", reduce="add", op="aten.scatter.reduce"),
    example("3xsi32[-9,9]", -1, "6xsi64[0,2]", "6xsi32[-9,9]", reduce="multiply", op="aten.scatter.reduce"),
])  # fmt: skip
def scatter(c: Coreai, self: Value, dim: int, index: Value, src: Value, reduce: str | None = None) -> Value:
    "elements of the source written to, added to or multiplied into places along a dimension"
    return combine(c, self, dim, index, src, _HOW[reduce])


@formula("lower", "aten.scatter.value", "aten.scatter.value_reduce", examples=[
    example("4x5xf32", 1, "3x2xsi64[0,4]", 0.5),
    example("4x5xf32", 0, "3x2xsi64[0,3]", 2, reduce="add", op="aten.scatter.value_reduce"),
])  # fmt: skip
def scatter_value(c: Coreai, self: Value, dim: int, index: Value, value: float, reduce: str | None = None) -> Value:
    "one number written to, added to or multiplied into places along a dimension"
    element = self.element_type
    return combine(
        c, self, dim, index, filled(c, exact_fill(value, element), sizes_of(c, index), element), _HOW[reduce]
    )


@formula("lower", "aten.scatter_add", examples=[
    example("4x5xf32", -1, "3x2xsi64[0,4]", "3x4xf32"), example("3xsi32", 0, "6xsi64[0,2]", "6xsi32"),
])  # fmt: skip
def scatter_add(c: Coreai, self: Value, dim: int, index: Value, src: Value) -> Value:
    "elements of the source added to places along a dimension"
    return combine(c, self, dim, index, src, "sum")


@formula("lower", "aten.scatter_reduce.two", examples=[
    example("4x3xf32", 0, "6x3xsi64[0,3]", "6x3xf32", "sum", include_self=False),
    example("4x3xf32", 0, "6x3xsi64[0,3]", "6x3xf32", "prod"),
    example("4x3xf32", 0, "6x3xsi64[0,3]", "6x3xf32", "amax"),
    example("4x3xf32", 0, "6x3xsi64[0,2]", "6x3xf32", "amin", include_self=False),
    example("4x3xf32", 1, "4x6xsi64[0,2]", "4x6xf32", "mean"),
    example("4xsi32[-9,9]", 0, "6xsi64[0,2]", "6xsi32[-9,9]", "mean", include_self=False),
])  # fmt: skip
def scatter_reduce(
    c: Coreai, self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool
) -> Value:  # fmt: skip
    "elements of the source combined at places along a dimension; NaN is larger and smaller than all"
    return combine(c, self, dim, index, src, reduce, include_self=include_self)


def _consecutive(torch: Any, x: Any, start: Any, values: Any) -> Any:
    return torch.ops.aten.index_put(x, [None, torch.arange(2) + start], values)


@lowering("aten.index_put", "aten._index_put_impl", "aten._unsafe_index_put", examples=[
    example("4x5xf32", ["2x1xsi64[-4,-4]", "2xsi64[0,4]"], "f32"),
    example("4x5xf32", [None, "1xsi64[-5,4]"], "4x1xf32"),
    example("2x3x4xf32", ["1xsi64[0,1]", None, "1xsi64[0,3]"], "3xf32"),
    example("4x5xf32", ["6xsi64[-4,3]"], "6x5xf32", True), example("4xsi32", ["6xsi64[0,3]"], "6xsi32", True),
    example("4x5xf32", ["4x5xi1"], "f32"), example("4x5xf32", ["4xi1"], "5xf32", True),
    example("4x5xf32", "si64[0,3]", "4x2xf32", program=_consecutive),
])  # fmt: skip
def index_put(op: OpView, c: Coreai) -> Value:
    """`x[i, :, j] = values`, or `+=`, with integer tensors or one mask; an update of a slice where `i` is a range.

    If several values go to one position, the last one stays; PyTorch does not specify which.
    """
    x, values = op["self"], op["values"]
    for name in ("unsafe", "check_bounds"):
        if name in op.arguments:
            op.ignore(name, because="an index out of range is always an error")
    given = list(op.indices) + [None] * (x.rank - len(op.indices))
    tensors = [item for item in given if item is not None]
    op.expect(bool(tensors), "an assignment by index needs at least one index tensor")
    values = convert(c, values, x.element_type)
    if any(item.dtype in ("i1", "ui8") for item in tensors):
        op.expect(len(tensors) == 1, "a mask and other indices together are not supported; assign in two steps")
        return _put_by_mask(op, c, x, given.index(tensors[0]), tensors[0], values)
    return _put(op, c, x, [axis for axis, item in enumerate(given) if item is not None], tensors, values)


def _put(op: OpView, c: Coreai, x: Value, axes: list[int], tensors: list[Value], values: Value) -> Value:
    shape, counts = broadcast_shapes(*(item.shape for item in tensors)), broadcast_sizes(c, tensors)
    rest = [axis for axis in range(x.rank) if axis not in axes]
    sizes = [x.shape[axis] for axis in rest]
    # adjacent indices put their dimensions where the first one stood, others in front
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    target = (*sizes[:first], *shape, *sizes[first:])
    if 0 in target:
        op.ignore("accumulate", because="there is nothing to put")
        return x
    if values.shape != target:
        around = [size_of(c, x, axis) for axis in rest]
        values = typed(c, expanded(c, values, target, [*around[:first], *counts, *around[first:]]), target)
    if len(axes) == 1 and not op.accumulate and (written := put_range(c, x, axes[0], tensors[0], values)):
        return written
    values = c.transpose(
        values, [*range(first, first + len(shape)), *range(first), *range(first + len(shape), len(target))]
    )
    order = [*axes, *rest]
    moved = axes_in_order(c, x, order)
    items = [as_index(c, item) for item in tensors]
    items = [item if item.shape == shape else expanded(c, item, shape, counts) for item in items]
    if op.accumulate:
        result = _accumulated(c, moved, items, values)
    else:
        result = c.scatter_nd(
            moved, c.concat(len(shape), [c.expand_dims(item, [len(shape)]) for item in items]), values
        )
    return axes_in_order(c, result, np.argsort(order).tolist())


def _accumulated(c: Coreai, x: Value, items: list[Value], values: Value) -> Value:
    """`x` with values added to the slices that vectors of indices address."""
    row = c.constant(0, "si32")
    sizes = sizes_of(c, x)
    for item, size in zip(items, sizes, strict=False):
        from_front = c.broadcasting_where(c.broadcasting_greater(0, item), c.broadcasting_add(item, size), item)
        row = c.broadcasting_add(c.broadcasting_mul(row, size), from_front)
    count, width = product(c, sizes[: len(items)]), product(c, sizes[len(items) :])
    rows = product(c, sizes_of(c, items[0]))
    index = c.broadcast_to(c.reshape(row, [rows, 1]), [rows, width])
    combined = combine(c, c.reshape(x, [count, width]), 0, index, c.reshape(values, [rows, width]), "sum")
    return c.reshape(combined, sizes)


def _put_by_mask(op: OpView, c: Coreai, x: Value, axis: int, mask: Value, values: Value) -> Value:
    """Values are the same for all places of the mask, or given one by one for those that are true."""
    if mask.dtype != "i1":  # a uint8 tensor is a mask, too
        mask = c.broadcasting_not_equal(mask, 0)
    after = x.rank - axis - mask.rank
    place = values.rank - after - 1  # the dimension of `values` for the places, if it has one
    if place >= 0 and values.shape[place] == 1:
        sizes = sizes_of(c, values)
        values = c.reshape(values, [*sizes[:place], *[1] * mask.rank, *sizes[place + 1 :]])
    elif place >= 0:
        order = [place, *(other for other in range(values.rank) if other != place)]
        spread = spread_by_mask(c, mask, c.transpose(values, order))
        values = c.transpose(spread, [*range(mask.rank, mask.rank + place), *range(mask.rank),
                                      *range(mask.rank + place, spread.rank)])  # fmt: skip
    mask = c.reshape(mask, [*sizes_of(c, mask), *[1] * after])
    if op.accumulate:
        values = c.broadcasting_or(x, values) if x.dtype == "i1" else c.broadcasting_add(x, values)
    return c.broadcasting_where(mask, values, x)


def spread_by_mask(c: Coreai, mask: Value, values: Value) -> Value:
    """The slices of `values`, in their order, at the places where a mask is true; of more slices the first ones."""
    number = c.scan(c.cast(c.reshape(mask, [-1]), "si32"), 0, False, scan_op="sum")
    # a slice of zeros in front serves the places before the first true one
    sizes = sizes_of(c, values)[1:]
    numbered = c.concat(0, [filled(c, 0, [1, *sizes], values.element_type), values])
    return c.reshape(c.gather_nd(numbered, c.expand_dims(number, [1])), [*sizes_of(c, mask), *sizes])


@formula(
    "lower", "aten.masked_scatter", where=lambda source: [~has_no_elements(source)],
    examples=[example("2x5xf32", "2x1xi1", "12xf32"), example("5xf32", "2x5xi1", "3x4xf32")],
)  # fmt: skip
def masked_scatter(c: Coreai, self: Value, mask: Value, source: Value) -> Value:
    "where the mask is true, the elements of the source in their order"
    x, mask = broadcast_together(c, [self, mask])
    return c.broadcasting_where(mask, spread_by_mask(c, mask, c.reshape(source, [-1])), x)


@formula(
    "lower",
    "aten.masked_scatter",
    name="masked_scatter of nothing",
    where=lambda source: [has_no_elements(source)],
    examples=[
        example("2x3xf32", program=lambda torch, x: x.masked_scatter(torch.zeros(3, dtype=torch.bool), torch.zeros(0))),
    ],
)
def masked_scatter_of_nothing(c: Coreai, self: Value, mask: Value) -> Value:
    "the tensor; eager PyTorch takes this only where the mask is false"
    return broadcast_together(c, [self, mask])[0]

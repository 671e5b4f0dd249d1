"""Positions of the largest and smallest values, and sorting.

PyTorch sorts NaN after infinity; the first NaN is both the largest and the smallest value.
"""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float, tensor
from patcomp.ir.value import Value
from patcomp.patterns import FurtherResults, OpView, Rule, example, lowering
from patcomp.patterns.aspects import SPECIAL
from patterns_catalog.lower.elementwise import complement
from patterns_catalog.lower.reductions import extreme, reduce
from patterns_catalog.sizes import Size
from patterns_catalog.slices import slice_axis

_TIES = FurtherResults("which of equal values has the index")


def _position_of_extreme(name: str) -> Rule:
    @lowering(f"aten.{name}", name=name, examples=[
        example("2x5xf32", 1), example("2x5xf32", -2, True), example("2x5xf32"), example("2x9xsi32[0,3]", 1),
    ])  # fmt: skip
    def rule(op: OpView, c: Coreai) -> Value:
        "the first of equals, and the first NaN where there is one; over the flat tensor without a dimension"
        x = op["self"]
        op.ignore("keepdim", because="the result type has the rank")
        flat = op.dim is None or x.rank == 0
        axis = 0 if flat else op.dim % x.rank
        position = first_extreme(c, c.reshape(x, [-1]) if flat else x, axis, largest=name == "argmax")
        position = c.cast(position, op.result.element_type)
        if flat or None not in op.result.shape:
            return c.reshape(position, list(op.result.static_shape))
        return position if op.result.rank == x.rank else c.shrink_dims(position, [axis])

    return rule


argmax = _position_of_extreme("argmax")
argmin = _position_of_extreme("argmin")


def _extreme_with_position(name: str) -> Rule:
    @lowering(f"aten.{name}.dim", name=f"{name} of a dimension", examples=[
        example("2x5xf32", 1), example("3x2x4xsi32[0,2]", 0, True), example("2x5xi1", -1), example("f32", 0),
    ])  # fmt: skip
    def rule(op: OpView, c: Coreai) -> list[Value]:
        "the value, and the position of the first of equals or of the first NaN"
        x, positions = op["self"], op.results[1].element_type
        if x.rank == 0:
            op.ignore("dim", "keepdim", because="a 0-d tensor has one value")
            return [x, c.constant(0, positions)]
        axis = op.dim % x.rank
        position = c.cast(first_extreme(c, x, axis, largest=name == "max"), positions)
        value = reduce(c, extreme(c, x, largest=name == "max"), x, [axis], op.keepdim)
        return [value, position if op.keepdim else c.shrink_dims(position, [axis])]

    return rule


max_of_dimension = _extreme_with_position("max")
min_of_dimension = _extreme_with_position("min")


def first_extreme(c: Coreai, x: Value, axis: int, *, largest: bool) -> Value:
    """Where the first of the largest or smallest values of an axis is, NaN before all others; the axis stays as 1."""
    x = _sortable(c, x)
    if not largest:
        x = _reversed(c, x)
    position = c.cast(c.argmax(x, axis), "si32")
    if is_float(x.element_type):
        unordered = _is_nan(c, x)
        first = c.cast(c.argmax(c.cast(unordered, "si32"), axis), "si32")
        position = c.broadcasting_where(c.any_(unordered, [axis]), first, position)
    return position


def _sortable(c: Coreai, x: Value) -> Value:
    """Bools as numbers: the runtime orders none."""
    return c.cast(x, "si32") if x.dtype == "i1" else x


def _reversed(c: Coreai, x: Value) -> Value:
    """Values in the opposite order; for integers the complement, which cannot overflow."""
    if is_float(x.element_type):
        return c.broadcasting_mul(x, -1.0)
    return complement(c, x)


def _is_nan(c: Coreai, x: Value) -> Value:
    return c.broadcasting_not_equal(x, x)


@lowering("aten.sort", "aten.sort.stable", unspecified={"sizes": _TIES}, examples=[
    example("2x9xf32"), example("2x9x2xf32", 1, True), example("9xsi32[-3,3]"), example("f32"),
    example("3x9xi1", stable=True, descending=True, op="aten.sort.stable"),
])  # fmt: skip
def sort(op: OpView, c: Coreai) -> list[Value]:
    "always stable; NaN counts as larger than infinity"
    x = op["self"]
    if "stable" in op.arguments:
        op.ignore("stable", because="every sort is")
    return _first_sorted(op, c, x, op.descending, None)


@lowering("aten.topk", unspecified={
    **dict.fromkeys((*SPECIAL, "element types", "sizes"), _TIES), "options": "the order of what is not sorted",
}, examples=[
    example("2x9xf32", 3), example("2x9x2xf32", 4, 1, False), example("9xsi32[-99,99]", 9), example("f32", 1),
])  # fmt: skip
def topk(op: OpView, c: Coreai) -> list[Value]:
    "the first `k` of a stable sort; PyTorch does not specify which of equal values come first"
    op.ignore("sorted", because="any order will do where it is False")
    return _first_sorted(op, c, op["self"], op.largest, op.k)


def _first_sorted(op: OpView, c: Coreai, x: Value, descending: bool, count: Size | None) -> list[Value]:
    """The first `count` sorted values, or all, and their positions."""
    positions = op.results[1].element_type
    if x.rank == 0:
        op.ignore("dim", because="a 0-d tensor has one value")
        return [x, c.constant(0, positions)]
    axis = op.dim % x.rank
    order = order_of(c, x, axis, descending)
    if count is not None and count != x.shape[axis]:
        order = slice_axis(c, order, axis, 0, count, result_type=tensor(op.result.shape, order.element_type))
    return [c.gather_along_axis(x, order, axis), c.cast(order, positions)]


def order_of(c: Coreai, x: Value, axis: int, descending: bool) -> Value:
    """The positions that sort an axis, equal values in their order; NaN counts as larger than infinity.

    The runtime's sort puts NaN last in both directions: floats are sorted as if NaN were infinity, then by being NaN.
    """
    x = _sortable(c, x)
    if not is_float(x.element_type):
        return c.argsort(x, axis, descending, True)
    unordered = _is_nan(c, x)
    infinity = c.constant(float("inf"), x.element_type)
    by_value = c.argsort(c.broadcasting_where(unordered, infinity, x), axis, descending, True)
    sorted_unordered = c.gather_along_axis(c.cast(unordered, "si32"), by_value, axis)
    return c.gather_along_axis(by_value, c.argsort(sorted_unordered, axis, descending, True), axis)

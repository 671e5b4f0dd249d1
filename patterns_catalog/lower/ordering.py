"""Positions of the largest and smallest values, and sorting.

PyTorch sorts NaN after infinity; the first NaN is both the largest and the smallest value.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import FurtherResults, Rule, example, formula
from patcomp.patterns.aspects import SPECIAL
from patterns_catalog.lower.elementwise import complement
from patterns_catalog.lower.reductions import extreme, reduce, with_or_without
from patterns_catalog.sizes import Size
from patterns_catalog.slices import slice_axis

_TIES = FurtherResults("which of equal values has the index")


def _positions_of_extremes(name: str, *, largest: bool) -> list[Rule]:
    """The rules for `argmax` or `argmin`: the first of equals, and the first NaN where there is one."""

    @formula("lower", f"aten.{name}", name=name, where=lambda self, dim: [self.rank > 0, ~dim.is_in(None)],
             examples=[example("2x5xf32", 1), example("2x5xf32", -2, True), example("2x9xsi32[0,3]", 1)])  # fmt: skip
    def along(c: Coreai, self: Value, dim: int, keepdim: bool, result: ValueType) -> Value:
        "the position in a dimension"
        position = c.cast(first_extreme(c, self, dim % self.rank, largest=largest), result.element_type)
        return _reduced(c, position, dim % self.rank, keepdim, result)

    @formula("lower", f"aten.{name}", name=f"{name} of all", ignored={"keepdim": "the result type has the shape"},
             where=lambda self, dim: [(self.rank == 0) | dim.is_in(None)], examples=[example("2x5xf32")])  # fmt: skip
    def of_all(c: Coreai, self: Value, result: ValueType) -> Value:
        "the position in the flat tensor"
        position = first_extreme(c, c.reshape(self, [-1]), 0, largest=largest)
        return c.reshape(c.cast(position, result.element_type), list(result.static_shape))

    return [along, of_all]


def _reduced(c: Coreai, position: Value, axis: int, keepdim: bool, result: ValueType) -> Value:
    """A position for each slice of an axis, in the shape of the result."""
    static = list(result.static_shape) if result.is_static else None
    return with_or_without(c, position, [axis], keepdim) if static is None else c.reshape(position, static)


argmax = _positions_of_extremes("argmax", largest=True)
argmin = _positions_of_extremes("argmin", largest=False)


def _extreme_with_position(name: str) -> Rule:
    @formula("lower", f"aten.{name}.dim", name=f"{name} of a dimension", where=lambda self: [self.rank > 0], examples=[
        example("2x5xf32", 1), example("3x2x4xsi32[0,2]", 0, True), example("2x5xi1", -1),
    ])  # fmt: skip
    def rule(c: Coreai, self: Value, dim: int, keepdim: bool, results: Sequence[ValueType]) -> list[Value]:
        "the value, and the position of the first of equals or of the first NaN"
        dim, largest = dim % self.rank, name == "max"
        position = c.cast(first_extreme(c, self, dim, largest=largest), results[1].element_type)
        value = reduce(c, extreme(c, self, largest=largest), self, [dim], keepdim)
        return [value, with_or_without(c, position, [dim], keepdim)]

    return rule


max_of_dimension = _extreme_with_position("max")
min_of_dimension = _extreme_with_position("min")


def first_extreme(c: Coreai, x: Value, axis: int, *, largest: bool) -> Value:
    """Where the first of the largest or smallest values of an axis is, NaN before all others; the axis stays as 1."""
    x = sortable(c, x)
    if not largest:
        x = _reversed(c, x)
    position = c.cast(c.argmax(x, axis), "si32")
    if is_float(x.element_type):
        unordered = _is_nan(c, x)
        first = c.cast(c.argmax(c.cast(unordered, "si32"), axis), "si32")
        position = c.broadcasting_where(c.any_(unordered, [axis]), first, position)
    return position


def sortable(c: Coreai, x: Value) -> Value:
    """Bools as numbers: the runtime orders none."""
    return c.cast(x, "si32") if x.dtype == "i1" else x


def _reversed(c: Coreai, x: Value) -> Value:
    """Values in the opposite order; for integers the complement, which cannot overflow."""
    if is_float(x.element_type):
        return c.broadcasting_mul(x, -1.0)
    return complement(c, x)


def _is_nan(c: Coreai, x: Value) -> Value:
    return c.broadcasting_not_equal(x, x)


@formula("lower", "aten.sort", "aten.sort.stable", ignored={"stable": "every sort is"},
         where=lambda self: [self.rank > 0], unspecified={"sizes": _TIES}, examples=[
    example("2x9xf32"), example("2x9x2xf32", 1, True), example("9xsi32[-3,3]"),
    example("3x9xi1", stable=True, descending=True, op="aten.sort.stable"),
])  # fmt: skip
def sort(c: Coreai, self: Value, dim: int, descending: bool, results: Sequence[ValueType]) -> list[Value]:
    "always stable; NaN counts as larger than infinity"
    return _first_sorted(c, self, dim % self.rank, descending, None, results)


OPEN_ORDER = {
    **dict.fromkeys((*SPECIAL, "element types", "sizes"), _TIES),
    "options": "the order of what is not sorted",
}


@formula("lower", "aten.topk", ignored={"sorted": "any order will do where it is False"},
         where=lambda self: [self.rank > 0], unspecified=OPEN_ORDER, examples=[
    example("2x9xf32", 3), example("2x9x2xf32", 4, 1, False), example("9xsi32[-99,99]", 9),
])  # fmt: skip
def topk(c: Coreai, self: Value, k: Size, dim: int, largest: bool, results: Sequence[ValueType]) -> list[Value]:
    "the first `k` of a stable sort; PyTorch does not specify which of equal values come first"
    return _first_sorted(c, self, dim % self.rank, largest, k, results)


def _first_sorted(
    c: Coreai, x: Value, axis: int, descending: bool, count: Size | None, results: Sequence[ValueType]
) -> list[Value]:
    """The first `count` sorted values, or all, and their positions."""
    order = order_of(c, x, axis, descending)
    if count is not None and count != x.shape[axis]:
        order = slice_axis(c, order, axis, 0, count, result_type=tensor(results[0].shape, order.element_type))
    return [c.gather_along_axis(x, order, axis), c.cast(order, results[1].element_type)]


def order_of(c: Coreai, x: Value, axis: int, descending: bool) -> Value:
    """The positions that sort an axis, equal values in their order; NaN counts as larger than infinity.

    The runtime's sort puts NaN last in both directions: floats are sorted as if NaN were infinity, then by being NaN.
    """
    x = sortable(c, x)
    if not is_float(x.element_type):
        return c.argsort(x, axis, descending, True)
    unordered = _is_nan(c, x)
    infinity = c.constant(float("inf"), x.element_type)
    by_value = c.argsort(c.broadcasting_where(unordered, infinity, x), axis, descending, True)
    sorted_unordered = c.gather_along_axis(c.cast(unordered, "si32"), by_value, axis)
    return c.gather_along_axis(by_value, c.argsort(sorted_unordered, axis, descending, True), axis)

"""Copies into slices, and repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import example, formula
from patcomp.patterns.conditions import contains, is_tensor
from patterns_catalog.lower.casts import convert
from patterns_catalog.lower.combining import filled
from patterns_catalog.lower.shapes import broadcast_like, of_rank, position_bounds, slice_bounds
from patterns_catalog.numbers import exact_fill
from patterns_catalog.sizes import Size, sizes_of
from patterns_catalog.slices import update_axis


@formula(
    "lower", "aten.copy", where=lambda src: [is_tensor(src)],
    examples=[example("2x3xf32", "3xf32"), example("2x3xf32", "2x3xsi64")],
)  # fmt: skip
def copy(c: Coreai, self: Value, src: Value, result: ValueType) -> Value:
    "the source in the shape and type of the destination"
    return broadcast_like(c, convert(c, src, result.element_type), self)


copy_of_number = formula(
    "lower", "aten.copy", name="copy of a number", where=lambda src: [~is_tensor(src)],
    examples=[example("2x3xf32", 0.5), example("4xsi32", 3)],
    doc="export leaves a number as it is: `x.copy_(0.5)`",
)(lambda c, self, src, result: filled(
    c, exact_fill(src, result.element_type), sizes_of(c, self), result.element_type
))  # fmt: skip


@formula("lower", "aten.slice_scatter", where=lambda self: [
    (self.rank > 0).says("a tensor without dimensions has no slices"),
], examples=[
    example("8x3xf32", "3x3xf32[0,9]", 0, 1, 6, 2), example("2x8xf32", "2x3xf32[0,9]", -1, -3),
    example("4xf32", "0xf32", 0, 2, 1),
])  # fmt: skip
def slice_scatter(c: Coreai, self: Value, src: Value, dim: int, start: Any, end: Any, step: Size) -> Value:
    "x with `x[start:end:step]` of one dimension replaced"
    first, last, step = slice_bounds(self, dim, start, end, step)
    return update_axis(c, self, dim % self.rank, first, last, convert(c, src, self.element_type), step)


@formula("lower", "aten.select_scatter", where=lambda self: [
    (self.rank > 0).says("a tensor without dimensions has no positions"),
], examples=[
    example("2x3xf32", "2xf32", 1, -1), example("2x3x4xf32", "3x4xsi32", 0, 1), example("3xf32", "f32", 0, 2),
])  # fmt: skip
def select_scatter(c: Coreai, self: Value, src: Value, dim: int, index: Size) -> Value:
    "x with one position of a dimension replaced"
    dim %= self.rank
    bounds = position_bounds(c, self, dim, index)
    return update_axis(c, self, dim, *bounds, c.expand_dims(convert(c, src, self.element_type), [dim]))


@formula("lower", "aten.repeat", where=lambda repeats: [
    (~contains(repeats, 0)).says("the runtime cannot repeat a tensor zero times"),
], examples=[example("2x3xf32", [2, 1, 3]), example("3xf32", [4]), example("f32", [2, 2])])  # fmt: skip
def repeat(c: Coreai, self: Value, repeats: Sequence[Size]) -> Value:
    "repetitions beyond the rank add dimensions in front"
    return tiled(c, of_rank(c, self, len(repeats)), repeats)


def tiled(c: Coreai, x: Value, counts: Sequence[Size]) -> Value:
    """Repetitions of each axis, of which all may be one."""
    return c.tile(x, counts) if any(count != 1 for count in counts) else x

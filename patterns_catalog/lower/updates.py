"""Copies into slices, and repetition."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.casts import convert
from patterns_catalog.lower.combining import filled
from patterns_catalog.lower.shapes import clamped, expanded, position_bounds
from patterns_catalog.numbers import exact_fill
from patterns_catalog.sizes import END, sizes_of
from patterns_catalog.slices import update_axis


@lowering("aten.copy", examples=[example("2x3xf32", "3xf32"), example("2x3xf32", "2x3xsi64")])
def copy(op: OpView, c: Coreai) -> Value:
    "the source in the shape and type of the destination"
    op.ignore("non_blocking", because="it only concerns devices")
    x, source, element = op["self"], op.src, op.result.element_type
    if not isinstance(source, Value):  # export leaves a number as it is: `x.copy_(0.5)`
        return filled(c, exact_fill(source, element), sizes_of(c, x), element)
    source = convert(c, source, element)
    return source if source.shape == x.shape else expanded(c, source, x.shape, sizes_of(c, x))


@lowering("aten.slice_scatter", examples=[
    example("8x3xf32", "3x3xf32[0,9]", 0, 1, 6, 2), example("2x8xf32", "2x3xf32[0,9]", -1, -3),
    example("4xf32", "0xf32", 0, 2, 1),
])  # fmt: skip
def slice_scatter(op: OpView, c: Coreai) -> Value:
    "x with `x[start:end:step]` of one dimension replaced"
    x = op["self"]
    op.expect(x.rank > 0, "a tensor without dimensions has no slices")
    dim = op.dim % x.rank
    size = x.shape[dim]
    bounds = (op.start, op.end, op.step)
    source = convert(c, op.src, x.element_type)
    if size is not None and not any(isinstance(bound, Value) for bound in bounds):
        start, end, step = slice(*bounds).indices(size)
        if end <= start:
            return x
    else:
        start, end, step = (clamped(bound, missing) for bound, missing in zip(bounds, (0, END, 1), strict=True))
    return update_axis(c, x, dim, start, end, source, step)


@lowering("aten.select_scatter", examples=[
    example("2x3xf32", "2xf32", 1, -1), example("2x3x4xf32", "3x4xsi32", 0, 1), example("3xf32", "f32", 0, 2),
])  # fmt: skip
def select_scatter(op: OpView, c: Coreai) -> Value:
    "x with one position of a dimension replaced"
    x = op["self"]
    op.expect(x.rank > 0, "a tensor without dimensions has no positions")
    dim = op.dim % x.rank
    bounds = position_bounds(c, x, dim, op["index"])
    return update_axis(c, x, dim, *bounds, c.expand_dims(convert(c, op.src, x.element_type), [dim]))


@lowering("aten.repeat", examples=[example("2x3xf32", [2, 1, 3]), example("3xf32", [4]), example("f32", [2, 2])])
def repeat(op: OpView, c: Coreai) -> Value:
    "repetitions beyond the rank add dimensions in front"
    x, counts = op["self"], list(op.repeats)
    op.expect(0 not in counts, "the runtime cannot repeat a tensor zero times")
    new = list(range(len(counts) - x.rank))
    aligned = c.expand_dims(x, new) if new else x
    return c.tile(aligned, counts) if any(count != 1 for count in counts) else aligned

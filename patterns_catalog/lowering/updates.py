"""Copies into slices, and repetition."""

from __future__ import annotations

from typing import Any

from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lowering.casts import convert

_END = 2**31 - 1


@lowering("aten.copy", examples=[example("2x3xf32", "3xf32"), example("2x3xf32", "2x3xsi64")])
def copy(op: OpView, c: Any) -> Value:
    "the source in the shape and type of the destination"
    op.ignore("self", because="the result type has its shape and type")
    op.ignore("non_blocking", because="it only concerns devices")
    op.expect(None not in op.result.shape, "a copy to a dynamic shape")
    source = convert(c, op.src, op.result.element_type)
    return source if source.shape == op.result.shape else c.broadcast_to(source, list(op.result.shape))


@lowering("aten.slice_scatter", examples=[
    example("8x3xf32", "3x3xf32[0,9]", 0, 1, 6, 2), example("2x8xf32", "2x3xf32[0,9]", -1, -3),
    example("4xf32", "0xf32", 0, 2, 1),
])  # fmt: skip
def slice_scatter(op: OpView, c: Any) -> Value:
    "x with `x[start:end:step]` of one dimension replaced"
    x = op["self"]
    dim = op.dim % x.rank
    size = x.shape[dim]
    bounds = (op.start, op.end, op.step)
    op.expect(
        size is not None and all(bound is None or isinstance(bound, int) for bound in bounds),
        "a slice of a dynamic dimension or with bounds known only at run time",
    )
    source = convert(c, op.src, x.element_type)
    start, end, step = slice(*bounds).indices(size)
    if end <= start:
        return x
    starts, ends, steps = [0] * x.rank, [_END] * x.rank, [1] * x.rank
    starts[dim], ends[dim], steps[dim] = start, end, step
    return c.slice_update(x, starts, ends, steps, source)


@lowering("aten.repeat", examples=[example("2x3xf32", [2, 1, 3]), example("3xf32", [4]), example("f32", [2, 2])])
def repeat(op: OpView, c: Any) -> Value:
    "repetitions beyond the rank add dimensions in front"
    x, counts = op["self"], list(op.repeats)
    op.expect(x.is_static, "a repeat of a dynamic shape")
    aligned = c.reshape(x, [*[1] * (len(counts) - x.rank), *x.static_shape]) if x.rank < len(counts) else x
    return c.tile(aligned, counts) if any(count != 1 for count in counts) else aligned

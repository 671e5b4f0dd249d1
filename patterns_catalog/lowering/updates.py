"""Copies into slices, repetition, and padding with the tensor's own values."""

from __future__ import annotations

from typing import Any

from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lowering.elementwise import convert

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


@lowering(
    "aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d",
    "aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d",
    examples=[
        example("1x2x5xf32", [1, 3]), example("1x2x4x5xf32", [1, 2, 3, 0], op="aten.reflection_pad2d"),
        example("2x4x5xf32", [1, 2, 3, 0], op="aten.reflection_pad2d"),
        example("1x2x3x4x3xf32", [1, 0, 2, 1, 0, 1], op="aten.reflection_pad3d"),
        example("1x2x5xf32", [6, 1], op="aten.replication_pad1d"),
        example("1x2x4x5xf32", [1, 2, 3, 0], op="aten.replication_pad2d"),
        example("1x2x3x4x3xf32", [1, 0, 2, 1, 0, 1], op="aten.replication_pad3d"),
    ],
)  # fmt: skip
def own_value_pad(op: OpView, c: Any) -> Value:
    "reflection leaves out the edge, replication repeats it"
    x, padding = op["self"], op.padding
    op.expect(min(padding) >= 0, "negative reflection or replication padding, which cuts")
    amounts = [0] * (2 * x.rank)
    for index in range(len(padding) // 2):
        axis = x.rank - 1 - index
        amounts[2 * axis], amounts[2 * axis + 1] = padding[2 * index], padding[2 * index + 1]
    if not any(amounts):
        return x
    mode = "reflect" if "reflection" in op.op_name else "replicate"
    return c.pad(x, amounts, c.constant(0, x.element_type), padding_mode=mode)

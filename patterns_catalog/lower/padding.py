"""Padding with the tensor's own values."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.shapes import cut_end, padding_of_axes


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
        example("1x2x5xf32", [-1, 3]), example("1x2x4x5xf32", [-2, 3, 1, -1], op="aten.replication_pad2d"),
    ],
)  # fmt: skip
def own_value_pad(op: OpView, c: Coreai) -> Value:
    "reflection leaves out the edge, replication repeats it; negative padding cuts, after the rest is padded"
    x, padding = op["self"], op.padding
    op.expect(all(isinstance(amount, int) for amount in padding), "padding amounts must be static; fix the sizes")
    amounts = padding_of_axes(padding, x.rank)
    added = [max(0, amount) for amount in amounts]
    if any(added):
        zero = c.constant(0, x.element_type)
        x = c.pad(x, added, zero, padding_mode="reflect" if "reflection" in op.op_name else "replicate")
    if min(amounts) >= 0:
        return x
    starts = [max(0, -amount) for amount in amounts[::2]]
    ends = [cut_end(size, max(0, -amount)) for size, amount in zip(x.shape, amounts[1::2], strict=True)]
    return c.slice_(x, starts, ends, [1] * x.rank)

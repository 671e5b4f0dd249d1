"""Result types of element-wise ops, casts and quantised data."""

from __future__ import annotations

from patcomp.ir.infer.common import (
    InferenceError,
    InferredOp,
    RuntimeRefusalError,
    broadcast_shapes,
    compatible,
    inference,
    require,
    shape_text,
)
from patcomp.ir.infer.indexing import check_along_axis, gathered_shape
from patcomp.ir.infer.shapes import sliced_shape
from patcomp.ir.types import Shape
from patcomp.ir.xdsl import Attribute


@inference
def _like_first(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    if op.row.name in ("softmax", "sort", "scan", "reverse"):
        op.axes(1, len(shape))
    if op.row.name == "slice_update":
        region = sliced_shape(op)
        update = op.shape(4)
        require(compatible(region, update), f"update {shape_text(update)} does not fit the slice {shape_text(region)}")
    if op.row.name == "scatter_along_axis":
        indices, updates = op.shape(1), op.shape(2)
        check_along_axis(op, axis=3)
        message = f"updates {shape_text(updates)} must have the shape of the indices {shape_text(indices)}"
        require(compatible(indices, updates), message)
    if op.row.name == "scatter_nd":
        expected = gathered_shape(shape, op.shape(1))
        updates = op.shape(2)
        require(
            compatible(expected, updates), f"updates {shape_text(updates)} must have the shape {shape_text(expected)}"
        )
    return [op.operands[0].type]


def _same(op: InferredOp) -> Shape:
    result = op.shape()
    for shape in dict.fromkeys(op.shapes()):
        # the native verifier takes a mix of `?` and static dimensions, but then the asset cannot be saved
        error = RuntimeRefusalError if compatible(shape, result) else InferenceError
        require(
            shape == result,
            f"shapes {shape_text(result)} and {shape_text(shape)} differ; use the broadcasting op",
            error,
        )
    return result


@inference
def _same_shape(op: InferredOp) -> list[Attribute]:
    return op.result(_same(op))


@inference
def _broadcast(op: InferredOp) -> list[Attribute]:
    return op.result(broadcast_shapes(*op.shapes()))


@inference
def _cast(op: InferredOp) -> list[Attribute]:
    raise InferenceError("a cast needs the element type to cast to")


@inference
def _complex_part(op: InferredOp) -> list[Attribute]:
    return op.result(op.shape(), "f32")


def _check_quantization(op: InferredOp) -> None:
    """Scale and offsets are all 0-d (one for the tensor) or all 1-d (one for each slice of the axis)."""
    shape, scale = op.shape(), op.shape(1)
    for offset in (op.shape(2), op.shape(3)):
        require(offset == scale, f"scale {shape_text(scale)} and offset {shape_text(offset)} differ in shape")
    per_tensor = len(op.shape(4)) == 1 and op.length(4) == len(shape)
    require(not (per_tensor and scale), "axes that list every dimension mean one scale, which must be 0-d")
    axes = op.axes(4, len(shape))
    if axes is None:
        return
    if per_tensor:
        require(axes == tuple(range(len(shape))), f"axes of a whole tensor must be listed in order, not as {axes}")
    elif scale:
        dim = shape[axes[0]]
        require(compatible(scale, (dim,)), f"there are {scale[0]} scales for the {dim} slices of axis {axes[0]}")


@inference
def _quantize(op: InferredOp) -> list[Attribute]:
    _check_quantization(op)
    return op.result(op.shape())


@inference
def _blockwise(op: InferredOp) -> list[Attribute]:
    data, scale = op.shape(), op.shape(1)
    require(len(data) == len(scale), f"scale {shape_text(scale)} must have the rank of the data {shape_text(data)}")
    for axis, (dim, blocks) in enumerate(zip(data, scale, strict=True)):
        divides = dim is None or blocks is None or (blocks > 0 and dim % blocks == 0)
        require(divides, f"dim {axis} of the data ({dim}) is not divisible by the scale's ({blocks})")
    return op.result(data)

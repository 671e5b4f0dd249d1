"""Result types of element-wise ops, casts and quantised data."""

from __future__ import annotations

from patcomp.ir.infer.common import (
    InferenceError,
    Operands,
    Properties,
    RuntimeRefusalError,
    broadcast_shapes,
    compatible,
    constant_axes,
    inference,
    operand_element,
    operand_length,
    operand_shape,
    require,
    shape_text,
)
from patcomp.ir.infer.indexing import check_along_axis, gathered_shape
from patcomp.ir.infer.shapes import sliced_shape
from patcomp.ir.rows import Row
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute


@inference
def _like_first(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    if row.name in ("softmax", "sort", "scan", "reverse"):
        constant_axes(operands[1], len(shape))
    if row.name == "slice_update":
        region = sliced_shape(shape, operands[1:4])
        update = operand_shape(operands[4])
        require(compatible(region, update), f"update {shape_text(update)} does not fit the slice {shape_text(region)}")
    if row.name == "scatter_along_axis":
        indices, updates = operand_shape(operands[1]), operand_shape(operands[2])
        check_along_axis(shape, indices, operands[3])
        message = f"updates {shape_text(updates)} must have the shape of the indices {shape_text(indices)}"
        require(compatible(indices, updates), message)
    if row.name == "scatter_nd":
        expected = gathered_shape(shape, operand_shape(operands[1]))
        updates = operand_shape(operands[2])
        require(
            compatible(expected, updates), f"updates {shape_text(updates)} must have the shape {shape_text(expected)}"
        )
    return [operands[0].type]


def _same(operands: Operands) -> Shape:
    shapes = {operand.type: operand_shape(operand) for operand in operands}
    result = operand_shape(operands[0])
    for shape in shapes.values():
        # the native verifier takes a mix of `?` and static dimensions, but then the asset cannot be saved
        error = RuntimeRefusalError if compatible(shape, result) else InferenceError
        require(
            shape == result,
            f"shapes {shape_text(result)} and {shape_text(shape)} differ; use the broadcasting op",
            error,
        )
    return result


@inference
def _same_shape(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(_same(operands), operand_element(operands[0]))]


@inference
def _same_shape_bool(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(_same(operands), "i1")]


@inference
def _where(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(_same(operands), operand_element(operands[1]))]


@inference
def _broadcast(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(broadcast_shapes(*map(operand_shape, operands)), operand_element(operands[0]))]


@inference
def _broadcast_bool(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(broadcast_shapes(*map(operand_shape, operands)), "i1")]


@inference
def _broadcast_where(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(broadcast_shapes(*map(operand_shape, operands)), operand_element(operands[1]))]


@inference
def _cast(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    raise InferenceError("a cast needs the element type to cast to")


@inference
def _create_complex(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(_same(operands), "complex<f32>")]


@inference
def _complex_part(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(operand_shape(operands[0]), "f32")]


def _check_quantization(operands: Operands) -> None:
    """Scale and offsets are all 0-d (one for the tensor) or all 1-d (one for each slice of the axis)."""
    shape, scale = operand_shape(operands[0]), operand_shape(operands[1])
    for offset in operands[2:4]:
        require(
            operand_shape(offset) == scale,
            f"scale {shape_text(scale)} and offset {shape_text(operand_shape(offset))} differ in shape",
        )
    per_tensor = len(operand_shape(operands[4])) == 1 and operand_length(operands[4]) == len(shape)
    require(not (per_tensor and scale), "axes that list every dimension mean one scale, which must be 0-d")
    axes = constant_axes(operands[4], len(shape))
    if axes is None:
        return
    if per_tensor:
        require(axes == tuple(range(len(shape))), f"axes of a whole tensor must be listed in order, not as {axes}")
    elif scale:
        dim = shape[axes[0]]
        require(compatible(scale, (dim,)), f"there are {scale[0]} scales for the {dim} slices of axis {axes[0]}")


@inference
def _like_offset1(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    _check_quantization(operands)
    return [tensor(operand_shape(operands[0]), operand_element(operands[2]))]


@inference
def _like_offset2(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    if row.name == "dequantize":
        _check_quantization(operands)
    if row.name == "blockwise_shift_scale":
        data, scale = operand_shape(operands[0]), operand_shape(operands[1])
        require(len(data) == len(scale), f"scale {shape_text(scale)} must have the rank of the data {shape_text(data)}")
        for axis, (dim, blocks) in enumerate(zip(data, scale, strict=True)):
            divides = dim is None or blocks is None or (blocks > 0 and dim % blocks == 0)
            require(divides, f"dim {axis} of the data ({dim}) is not divisible by the scale's ({blocks})")
    return [tensor(operand_shape(operands[0]), operand_element(operands[3]))]

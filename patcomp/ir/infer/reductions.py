"""Result types of reductions, arg-reductions, sorting positions and statistics."""

from __future__ import annotations

from patcomp.ir.constants import constant_integers
from patcomp.ir.infer.common import (
    Operands,
    Properties,
    RuntimeRefusalError,
    constant_axes,
    inference,
    normalize_axis,
    operand_element,
    operand_length,
    operand_shape,
    require,
)
from patcomp.ir.rows import Row
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute

_NO_RANK = "a reduction of a 0-d tensor aborts the runtime; reshape it to rank 1 first"
_NO_AXES = "a reduction over no axes makes the runtime sum everything; leave the op out instead"


def _reduced(shape: Shape, axes: tuple[int, ...] | None, count: int | None) -> Shape:
    if axes is None:
        return (1,) * len(shape) if count == len(shape) else (None,) * len(shape)
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))


@inference
def _reduce(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    require(len(shape) > 0, _NO_RANK, RuntimeRefusalError)
    axes = constant_axes(operands[1], len(shape))
    require(axes != (), _NO_AXES, RuntimeRefusalError)
    return [tensor(_reduced(shape, axes, operand_length(operands[1])), operand_element(operands[0]))]


def _reduced_one(operands: Operands) -> Shape:
    shape = operand_shape(operands[0])
    require(len(shape) > 0, _NO_RANK, RuntimeRefusalError)
    return _reduced(shape, constant_axes(operands[1], len(shape)), 1 if len(shape) == 1 else None)


@inference
def _argmax(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(_reduced_one(operands), "ui32")]


@inference
def _reduce_index(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(_reduced_one(operands), operand_element(operands[3]))]


@inference
def _argsort(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    constant_axes(operands[1], len(shape))
    return [tensor(shape, "si32")]


@inference
def _non_zero(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor((None, len(operand_shape(operands[0]))), "si32")]


@inference
def _quantization_statistics(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    axis = constant_integers(operands[2])
    size = None if axis is None else shape[normalize_axis(axis[0], len(shape))]
    scale: Attribute = tensor((size,), operand_element(operands[0]))
    return [scale] if len(row.results) == 1 else [scale, tensor((size,), operand_element(operands[1]))]

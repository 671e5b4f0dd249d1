"""Result types of gathers, and the shape checks of scatters."""

from __future__ import annotations

from patcomp.ir.infer.common import (
    Operands,
    Properties,
    constant_axes,
    inference,
    operand_element,
    operand_shape,
    require,
    shape_text,
)
from patcomp.ir.rows import Row
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute, SSAValue


def check_along_axis(shape: Shape, indices: Shape, axis: SSAValue) -> None:
    """Refuses indices that do not have the input's shape outside an axis."""
    require(len(shape) == len(indices), f"indices {shape_text(indices)} need the rank of the input {shape_text(shape)}")
    axes = constant_axes(axis, len(shape))
    if axes is not None:
        for position, (dim, index) in enumerate(zip(shape, indices, strict=True)):
            fits = position == axes[0] or dim is None or index is None or dim == index
            require(fits, f"dimension {position} of the indices ({index}) differs from the input's ({dim})")


@inference
def _gather_along_axis(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    check_along_axis(operand_shape(operands[0]), operand_shape(operands[1]), operands[2])
    return [tensor(operand_shape(operands[1]), operand_element(operands[0]))]


def gathered_shape(shape: Shape, indices: Shape) -> Shape:
    """The shape of what index vectors in the last dimension pick from a tensor."""
    require(len(indices) > 0 and indices[-1] is not None, "the last dimension of the indices must be static")
    depth = indices[-1]
    assert depth is not None
    require(depth <= len(shape), f"indices of {depth} columns cannot address rank {len(shape)}")
    return (*indices[:-1], *shape[depth:])


@inference
def _gather_nd(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [
        tensor(gathered_shape(operand_shape(operands[0]), operand_shape(operands[1])), operand_element(operands[0]))
    ]

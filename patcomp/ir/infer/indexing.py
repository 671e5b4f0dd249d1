"""Result types of gathers, and the shape checks of scatters."""

from __future__ import annotations

from patcomp.ir.infer.common import InferredOp, inference, require, shape_text
from patcomp.ir.types import Shape
from patcomp.ir.xdsl import Attribute


def check_along_axis(op: InferredOp, axis: int) -> None:
    """Refuse indices, the second operand, that do not have the input's shape outside the axis in operand `axis`."""
    shape, indices = op.shape(0), op.shape(1)
    require(len(shape) == len(indices), f"indices {shape_text(indices)} need the rank of the input {shape_text(shape)}")
    axes = op.axes(axis, len(shape))
    if axes is not None:
        for position, (dim, index) in enumerate(zip(shape, indices, strict=True)):
            fits = position == axes[0] or dim is None or index is None or dim == index
            require(fits, f"dimension {position} of the indices ({index}) differs from the input's ({dim})")


@inference
def _gather_along_axis(op: InferredOp) -> list[Attribute]:
    check_along_axis(op, axis=2)
    return op.result(op.shape(1))


def gathered_shape(shape: Shape, indices: Shape) -> Shape:
    """The shape of the slices that index vectors, the last dimension of the indices, select."""
    require(len(indices) > 0 and indices[-1] is not None, "the last dimension of the indices must be static")
    depth = indices[-1]
    assert depth is not None
    require(depth <= len(shape), f"indices of {depth} columns cannot address rank {len(shape)}")
    return (*indices[:-1], *shape[depth:])


@inference
def _gather_nd(op: InferredOp) -> list[Attribute]:
    return op.result(gathered_shape(op.shape(), op.shape(1)))

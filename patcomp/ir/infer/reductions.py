"""Result types of reductions, arg-reductions, sorting positions and statistics."""

from __future__ import annotations

from patcomp.ir.infer.common import InferredOp, RuntimeRefusalError, inference, normalize_axis, require
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute

_NO_RANK = "a reduction of a 0-d tensor aborts the runtime; reshape it to rank 1 first"
_NO_AXES = "a reduction over no axes makes the runtime sum everything; leave the op out instead"


def _reduced(shape: Shape, axes: tuple[int, ...] | None, count: int | None) -> Shape:
    if axes is None:
        return (1,) * len(shape) if count == len(shape) else (None,) * len(shape)
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))


@inference
def _reduce(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    require(len(shape) > 0, _NO_RANK, RuntimeRefusalError)
    axes = op.axes(1, len(shape))
    require(axes != (), _NO_AXES, RuntimeRefusalError)
    return op.result(_reduced(shape, axes, op.length(1)))


def _reduced_one(op: InferredOp) -> Shape:
    shape = op.shape()
    require(len(shape) > 0, _NO_RANK, RuntimeRefusalError)
    return _reduced(shape, op.axes(1, len(shape)), 1 if len(shape) == 1 else None)


@inference
def _argmax(op: InferredOp) -> list[Attribute]:
    return op.result(_reduced_one(op), "ui32")


@inference
def _reduce_index(op: InferredOp) -> list[Attribute]:
    return op.result(_reduced_one(op), 3)


@inference
def _argsort(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    op.axes(1, len(shape))
    return op.result(shape, "si32")


@inference
def _non_zero(op: InferredOp) -> list[Attribute]:
    return op.result((None, len(op.shape())), "si32")


@inference
def _quantization_statistics(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    axis = op.integers(2)
    size = None if axis is None else shape[normalize_axis(axis[0], len(shape))]
    scale: Attribute = tensor((size,), op.element(0))
    return [scale] if len(op.row.results) == 1 else [scale, tensor((size,), op.element(1))]

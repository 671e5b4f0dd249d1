"""Reductions, and ops along an axis."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp.onnx.importing.rows import Ints, KnownNumber, NodeCall, OnnxRow, onnx_op


def _reduction(function: Any) -> OnnxRow:
    def row(x: Tensor, axes: Ints | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        if not axes and noop_with_empty_axes:
            return x
        return function(x, axes or list(range(x.dim())), bool(keepdims))

    return row


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keep, dtype=x.dtype)
    return x


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.sum(x, axes, keep, dtype=x.dtype)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.mean(x, axes, keep)


for _name, _function in {
    "ReduceSum": _sum, "ReduceMean": _mean, "ReduceMax": torch.amax, "ReduceMin": torch.amin, "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: _sum(x, axes, keep).log(),
    "ReduceLogSumExp": torch.logsumexp, "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
}.items():  # fmt: skip
    onnx_op(_name)(_reduction(_function))


def _arg(function: Any) -> OnnxRow:
    def row(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if select_last_index:
            last = function(x.flip(axis), axis, bool(keepdims))
            return x.shape[axis] - 1 - last
        return function(x, axis, bool(keepdims))

    return row


onnx_op("ArgMax")(_arg(torch.argmax))
onnx_op("ArgMin")(_arg(torch.argmin))


def _softmax(function: Any) -> OnnxRow:
    def row(x: Tensor, *, axis: int | None = None, node: NodeCall) -> Tensor:
        if axis is not None and not -x.dim() <= axis < x.dim():  # PyTorch's shape function does not say so
            raise IndexError(f"there is no axis {axis} of {x.dim()}")
        if node.opset >= 13:
            return function(x, -1 if axis is None else axis)
        axis = (1 if axis is None else axis) % x.dim()
        if axis == x.dim() - 1:
            return function(x, axis)
        return function(x.flatten(axis), axis).reshape(x.shape)  # before opset 13, over all axes from this one

    return row


onnx_op("Softmax")(_softmax(torch.softmax))
onnx_op("LogSoftmax")(_softmax(torch.log_softmax))


@onnx_op("Hardmax")
def hardmax(x: Tensor, *, axis: int | None = None, node: NodeCall) -> Tensor:
    if node.opset < 13:
        raise TypeError("Hardmax of opsets before 13 is not supported")
    axis = -1 if axis is None else axis
    positions = torch.arange(x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = x.shape[axis]
    return (torch.argmax(x, axis, True) == positions.reshape(shape)).to(x.dtype)


@onnx_op("TopK")
def top_k(x: Tensor, k: KnownNumber, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    """The first of equal numbers comes first, which `torch.topk` leaves open."""
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)

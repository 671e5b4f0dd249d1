"""Quantised, palettised and sparse data."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from patcomp.evaluate.element_types import as_bits, fits, widen
from patcomp.evaluate.machine import SparseTensor
from patcomp.evaluate.registry import EvaluatedOp, axis_of, implements
from patcomp.ir.types import integer_range, is_integer

_LARGEST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0, "f4E2M1FN": 6.0}
"""The largest value of the float types that can be quantised to: quantising saturates, a cast need not."""


def _broadcastable(op: EvaluatedOp, x: Tensor, *parameters: Tensor) -> Iterator[Tensor]:
    """Scale and offsets, shaped to broadcast with `x`. The last parameter is the axis of the 1-d ones; a scalar needs
    no axis."""
    *values, axis = parameters
    for value in values:
        wide = widen(value).float()
        if wide.dim():
            dim = axis_of(op, axis, x.dim())
            wide = wide.reshape([-1 if position == dim else 1 for position in range(x.dim())])
        yield wide


@implements("coreai.quantize")
def quantize(op: EvaluatedOp, x: Tensor, *parameters: Tensor) -> Tensor:
    scale, offset1, offset2 = _broadcastable(op, x, *parameters)
    quantized = (widen(x).float() - offset2) / scale
    element = op.element()
    if not is_integer(element):
        limit = _LARGEST[element]
        return op.result((quantized + offset1).clamp(-limit, limit))
    low, high = integer_range(element)
    rounded = torch.round(quantized) + offset1
    return op.result(torch.nan_to_num(rounded, nan=0.0).clamp(low, high).to(torch.int64))


@implements("coreai.dequantize")
def dequantize(op: EvaluatedOp, x: Tensor, *parameters: Tensor) -> Tensor:
    scale, offset1, offset2 = _broadcastable(op, x, *parameters)
    return op.result((widen(x).float() - offset1) * scale + offset2)


@implements("coreai.blockwise_shift_scale")
def blockwise_shift_scale(op: EvaluatedOp, data: Tensor, scale: Tensor, offset1: Tensor, offset2: Tensor) -> Tensor:
    def blocks(parameter: Tensor) -> Tensor:
        values = widen(parameter).float()
        if values.dim() != data.dim():
            raise op.error(f"scale {tuple(values.shape)} must have the rank of the data {tuple(data.shape)}")
        for dim, size in enumerate(data.shape):
            if values.shape[dim] == 0 or size % values.shape[dim]:
                raise op.error(f"dimension {dim} of {tuple(data.shape)} does not divide in {values.shape[dim]}")
            if values.shape[dim] not in (1, size):
                values = values.repeat_interleave(size // values.shape[dim], dim=dim)
        return values

    return op.result((widen(data).float() - blocks(offset1)) * blocks(scale) + blocks(offset2))


def _looked_up(op: EvaluatedOp, indices: Tensor, lut: Tensor, axis: int) -> Tensor:
    """Entries of a table `blocks... x palette x vector` for indices; vectors are laid out along `axis`."""
    rank = indices.dim()
    if lut.dim() != rank + 2:
        raise op.error(f"a lookup table for rank {rank} needs rank {rank + 2}")
    block = []
    for dim, size in enumerate(indices.shape):
        if size % lut.shape[dim]:
            raise op.error(f"dimension {dim} of {tuple(indices.shape)} does not divide in {lut.shape[dim]}")
        number = torch.arange(size) // max(size // lut.shape[dim], 1)
        block.append(number.reshape([-1 if position == dim else 1 for position in range(rank)]))
    entries = as_bits(lut)[(*block, indices.to(torch.int64))]
    if lut.shape[-1] == 1:
        return entries.squeeze(-1).view(lut.dtype)
    return entries.movedim(-1, axis + 1).flatten(axis, axis + 1).view(lut.dtype)


@implements("coreai.lut_to_dense")
def lut_to_dense(op: EvaluatedOp, indices: Tensor, lut: Tensor, axis: Tensor) -> Tensor:
    return _looked_up(op, indices, lut, axis_of(op, axis, indices.dim()))


@implements("coreai.lut_to_sparse_with_bitmask")
def lut_to_sparse(op: EvaluatedOp, indices: SparseTensor, lut: Tensor, axis: Tensor) -> SparseTensor:
    if lut.shape[-1] != 1:
        raise op.error("vector entries of a sparse lookup table are not supported")
    full = torch.zeros(indices.bitmask.shape, dtype=torch.int64)
    mask = indices.bitmask != 0
    full[mask] = indices.values.to(torch.int64)
    dense = _looked_up(op, full, lut, axis_of(op, axis, full.dim()))
    return SparseTensor(as_bits(dense)[mask].view(dense.dtype), indices.bitmask)


@implements("coreai.build_sparse_with_bitmask")
def build_sparse(op: EvaluatedOp, values: Tensor, bitmask: Tensor) -> SparseTensor:
    if int((bitmask != 0).sum()) != values.numel():
        raise op.error(f"{values.numel()} values for {int((bitmask != 0).sum())} places of the bitmask")
    return SparseTensor(values, bitmask)


@implements("coreai.sparse_with_bitmask_to_dense")
def sparse_to_dense(op: EvaluatedOp, x: SparseTensor) -> Tensor:
    dense = torch.zeros(x.bitmask.shape, dtype=as_bits(x.values).dtype)
    dense[x.bitmask != 0] = as_bits(x.values)
    return dense.view(x.values.dtype)


def _limits(op: EvaluatedOp, limits: Tensor) -> tuple[float, float]:
    """The smallest and largest quantised value; their distance must fit the element type, in which it is computed."""
    low, high = widen(limits).tolist()
    element = op.operand_element(1)
    if is_integer(element) and not fits(torch.tensor(high - low), element):
        raise op.error(f"the width of the range {low:g}..{high:g} overflows {element}; state the range in floats")
    return float(low), float(high)


def _extremes(op: EvaluatedOp, x: Tensor, axis: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and largest value of each slice along an axis, in f32."""
    rows = widen(x).float().movedim(axis_of(op, axis, x.dim()), 0).flatten(1)
    return rows.amin(dim=1), rows.amax(dim=1)


@implements("coreai.symmetric_quantization_statistics")
def symmetric_statistics(op: EvaluatedOp, x: Tensor, limits: Tensor, axis: Tensor) -> Tensor:
    low, high = _limits(op, limits)
    smallest, largest = _extremes(op, x, axis)
    return op.result(torch.maximum(smallest.abs(), largest.abs()) / ((high - low) / 2))


@implements("coreai.asymmetric_quantization_statistics")
def asymmetric_statistics(op: EvaluatedOp, x: Tensor, limits: Tensor, axis: Tensor) -> list[Tensor]:
    """Scale and zero point of an affine quantisation of the values, whose range is widened to contain 0."""
    low, high = _limits(op, limits)
    smallest, largest = _extremes(op, x, axis)
    smallest, largest = smallest.clamp(max=0), largest.clamp(min=0)
    scale = (largest - smallest) / (high - low)
    zero = torch.round(low - smallest / scale).nan_to_num(nan=0.0).clamp(low, high)
    return [op.result(scale), op.result(zero.to(torch.int64) if is_integer(op.element(1)) else zero, 1)]

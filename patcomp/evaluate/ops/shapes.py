"""Ops that only move elements: reshape, transpose, slice, pad, concat, broadcasts; and shapes as values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.evaluate.element_types import as_bits, moved
from patcomp.evaluate.registry import EvaluatedOp, axis_of, front_axes, implements, integers


@implements("coreai.reshape")
def reshape(op: EvaluatedOp, x: Tensor, new_shape: Tensor) -> Tensor:
    return x.reshape(integers(new_shape))


@implements("coreai.transpose")
def transpose(op: EvaluatedOp, x: Tensor, permutation: Tensor) -> Tensor:
    return x.permute(integers(permutation))


@implements("coreai.expand_dims")
def expand_dims(op: EvaluatedOp, x: Tensor, axes: Tensor) -> Tensor:
    rank = x.dim() + axes.numel()
    new = front_axes(op, axes, rank)
    remaining = iter(x.shape)
    return x.reshape([1 if axis in new else next(remaining) for axis in range(rank)])


@implements("coreai.shrink_dims")
def shrink_dims(op: EvaluatedOp, x: Tensor, axes: Tensor) -> Tensor:
    dropped = front_axes(op, axes, x.dim())
    if any(x.shape[axis] != 1 for axis in dropped):
        raise op.error(f"axes {dropped} of {tuple(x.shape)} are not all 1")
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in dropped])


@implements("coreai.broadcast_to")
def broadcast_to(op: EvaluatedOp, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(integers(shape))


@implements("coreai.broadcast_in_dims")
def broadcast_in_dims(op: EvaluatedOp, x: Tensor, sizes: Tensor, axes: Tensor) -> Tensor:
    shape = list(x.shape)
    for axis, size in zip(front_axes(op, axes, x.dim()), integers(sizes), strict=True):
        shape[axis] = size
    return x.expand(shape)


@implements("coreai.get_shape")
def get_shape(op: EvaluatedOp, x: Tensor) -> Tensor:
    return op.result(torch.tensor(x.shape, dtype=torch.int64))


@implements("coreai.broadcast_shapes")
def broadcast_shapes(op: EvaluatedOp, first: Tensor, second: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(integers(first), integers(second))
    return op.result(torch.tensor(shape, dtype=torch.int64))


@implements("coreai.tile")
def tile(op: EvaluatedOp, x: Tensor, counts: Tensor) -> Tensor:
    return moved(lambda bits: torch.tile(bits, integers(counts)), x)


@implements("coreai.reverse")
def reverse(op: EvaluatedOp, x: Tensor, dims: Tensor) -> Tensor:
    return moved(lambda bits: torch.flip(bits, front_axes(op, dims, x.dim())), x)


@implements("coreai.concat")
def concat(op: EvaluatedOp, axis: Tensor, *tensors: Tensor) -> Tensor:
    dim = axis_of(op, axis, tensors[0].dim())
    return moved(lambda *bits: torch.cat(bits, dim=dim), *tensors)


@implements("coreai.split")
def split(op: EvaluatedOp, x: Tensor, sections: Tensor, axis: Tensor) -> list[Tensor]:
    sizes = integers(sections)
    parts = torch.split(x, sizes[0] if sections.dim() == 0 else sizes, dim=axis_of(op, axis, x.dim()))
    if len(parts) != len(op.operation.results):
        raise op.error(f"splits in {len(parts)} parts, but has {len(op.operation.results)} results")
    return list(parts)


def _positions(op: EvaluatedOp, shape: torch.Size, bounds: tuple[Tensor, ...]) -> list[range]:
    """The positions that a slice takes in each dimension; bounds wrap once and are clamped, as in Python."""
    starts, ends, strides = map(integers, bounds)
    if not len(starts) == len(ends) == len(strides) == len(shape):
        raise op.error(f"slice bounds need one value for each of {len(shape)} dimensions")
    if 0 in strides:
        raise op.error("slice strides must not be zero")
    return [
        range(*slice(start, end, stride).indices(size))
        for size, start, end, stride in zip(shape, starts, ends, strides, strict=True)
    ]


def _region(x: Tensor, positions: list[range]) -> tuple[Tensor, list[int]]:
    """A view of the positions in increasing order, and the dimensions to flip for the requested order."""
    flipped = []
    for dim, taken in enumerate(positions):
        if taken.step < 0:
            taken = taken[::-1]
            flipped.append(dim)
        if len(taken) == 0:
            x = x.narrow(dim, 0, 0)
        elif len(taken) != x.shape[dim]:
            x = x.narrow(dim, taken.start, taken[-1] - taken.start + 1)
            x = x[(slice(None),) * dim + (slice(None, None, taken.step),)]
    return x, flipped


@implements("coreai.slice")
def slice_(op: EvaluatedOp, x: Tensor, *bounds: Tensor) -> Tensor:
    view, flipped = _region(x, _positions(op, x.shape, bounds))
    return moved(lambda bits: torch.flip(bits, flipped), view) if flipped else view


@implements("coreai.slice_update")
def slice_update(op: EvaluatedOp, x: Tensor, *rest: Tensor) -> Tensor:
    *bounds, update = rest
    result = as_bits(x).clone(memory_format=torch.contiguous_format)
    positions = _positions(op, x.shape, tuple(bounds))
    if any(taken.step < 0 for taken in positions):
        raise op.error("an update with negative strides is refused by the toolchain")
    view, _ = _region(result, positions)
    if tuple(view.shape) != tuple(update.shape):
        raise op.error(f"update {tuple(update.shape)} does not fit the slice {tuple(view.shape)}")
    view.copy_(as_bits(update))
    return result.view(x.dtype)


def _source_index(mode: str, size: int, before: int, after: int) -> Tensor:
    """For each position of a padded dimension the position of the input that it repeats."""
    index = torch.arange(-before, size + after)
    if mode == "replicate":
        return index.clamp(0, size - 1)
    if mode == "circular":
        return index % size
    if mode == "reflect":
        period = max(2 * size - 2, 1)
        index = index % period
        return torch.where(index >= size, period - index, index)
    index = index % (2 * size)
    return torch.where(index >= size, 2 * size - 1 - index, index)


@implements("coreai.pad")
def pad(op: EvaluatedOp, x: Tensor, padding: Tensor, value: Tensor) -> Tensor:
    amounts = integers(padding)
    if len(amounts) != 2 * x.dim():
        raise op.error(f"needs {2 * x.dim()} padding amounts, got {len(amounts)}")
    pairs = list(zip(amounts[::2], amounts[1::2], strict=True))
    mode = op.attribute("padding_mode", "constant")
    bits = as_bits(x)
    if mode == "constant":
        reversed_pairs = [amount for pair in reversed(pairs) for amount in pair]
        return torch.constant_pad_nd(bits, reversed_pairs, as_bits(value).item()).view(x.dtype)
    for dim, (before, after) in enumerate(pairs):
        if before or after:
            bits = bits.index_select(dim, _source_index(mode, x.shape[dim], before, after))
    return bits.view(x.dtype)


@implements("coreai.range")
def range_(op: EvaluatedOp, start: Tensor, stop: Tensor, step: Tensor) -> Tensor:
    first, last, distance = (tensor.item() for tensor in (start, stop, step))
    if distance == 0:
        raise op.error("the step must not be zero")
    count = max(0, math.ceil((last - first) / distance))
    dtype = torch.float64 if start.is_floating_point() else torch.int64
    return op.result(first + torch.arange(count, dtype=dtype) * distance)

"""Ops that move, cut and join tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.rows import Ints, KnownNumber, NodeCall, Operand, onnx_op
from patcomp.onnx.importing.values import KnownArray, known_array


@onnx_op("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> KnownArray:
    return known_array(list(x.shape)[start:end])


@onnx_op("Size")
def size(x: Tensor) -> KnownArray:
    return known_array(x.numel())


@onnx_op("Reshape")
def _reshape(x: Tensor, shape: Ints, *, allowzero: int = 0) -> Tensor:
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(_plain(shape))])


def _plain(shape: Any) -> list[Any]:
    """Sizes; -1 is compared with sizes that are open nowhere."""
    return list(shape)


@onnx_op("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis % x.dim() if axis != x.dim() else axis
    rows = 1
    for each in x.shape[:axis]:
        rows = rows * each
    return x.reshape([rows, -1])


@onnx_op("Transpose")
def _transpose(x: Tensor, *, perm: Ints | None = None) -> Tensor:
    return x.permute(perm if perm is not None else list(range(x.dim()))[::-1])


@onnx_op("Squeeze")
def _squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


@onnx_op("Unsqueeze")
def _unsqueeze(x: Tensor, axes: Ints) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@onnx_op("Concat")
def _concat(*x: Tensor, axis: int) -> Tensor:
    return torch.cat(x, axis)


@onnx_op("Split")
def _split(x: Tensor, split: Ints | None = None, *, axis: int = 0, num_outputs: int = 0, node: NodeCall) -> Any:
    """Parts of given sizes, or of equal ones, of which the last may be smaller."""
    if split is None:
        count = num_outputs or node.outputs
        each = (x.shape[axis] + count - 1) // count
        split = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    return tuple(torch.split(x, split, axis))


@onnx_op("Slice")
def _slice_(x: Tensor, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None) -> Tensor:
    axes = axes if axes is not None else list(range(len(starts)))
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        if step > 0:
            x = torch.ops.aten.slice.Tensor(x, axis, start, end, step)
            continue
        length = x.shape[axis]
        first, last = (max(n + length, low) if n < 0 else min(n, length - 1) for n, low in ((start, 0), (end, -1)))
        # backwards: from the first down to behind the last
        x = torch.ops.aten.slice.Tensor(x, axis, last + 1, first + 1, 1).flip(axis)
        x = torch.ops.aten.slice.Tensor(x, axis, 0, None, -step) if step != -1 else x
    return x


@onnx_op("Gather")
def _gather(x: Tensor, indices: Any, *, axis: int = 0) -> Tensor:
    """Rows by their numbers; known numbers are a selection of one or more rows."""
    if isinstance(indices, KnownArray) and indices.values.ndim == 0:
        return x.select(axis, indices.number)
    if isinstance(indices, KnownArray):
        negative = any(index < 0 for index in indices.values.reshape(-1))
        indices = _from_the_front(indices.tensor(), x.shape[axis]) if negative else indices.tensor()
    else:
        indices = _from_the_front(indices, x.shape[axis])
    axis = axis % x.dim()
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(indices, x)
    rows = x.index_select(axis, indices.reshape(-1))
    return rows.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _from_the_front(indices: Tensor, length: Any) -> Tensor:
    return torch.where(indices < 0, indices + length, indices)


@onnx_op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, _from_the_front(indices, x.shape[axis]).long())


@onnx_op("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    leading = []
    for axis in range(batch_dims):
        ones = [1] * (indices.dim() - 1)
        ones[axis] = x.shape[axis]
        leading.append(torch.arange(x.shape[axis]).reshape(ones))
    return x[(*leading, *indices.unbind(-1))]


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    indices = _from_the_front(indices, x.shape[axis]).long()
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(axis, indices, updates, _REDUCTIONS[reduction])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@onnx_op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    if reduction not in ("none", "add"):
        raise TypeError(f"the reduction {reduction} is not supported")
    return x.index_put(tuple(indices.unbind(-1)), updates, accumulate=reduction == "add")


@onnx_op("Expand")
def _expand(x: Tensor, shape: Ints) -> Tensor:
    """Broadcasts both ways: a size 1 asked for keeps the tensor's."""
    kept = [1] * (len(shape) - x.dim()) + list(x.shape)
    kept = kept[-len(shape) :] if len(shape) >= x.dim() else kept
    wanted = [1] * (x.dim() - len(shape)) + list(shape)
    return x.broadcast_to([own if _is_one(size) else size for own, size in zip(kept, wanted, strict=True)])


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


@onnx_op("Tile")
def _tile(x: Tensor, repeats: Ints) -> Tensor:
    return x.repeat(repeats)


@onnx_op("Pad")
def pad(
    x: Tensor, pads: Ints, value: Operand | None = None, axes: Ints | None = None, *, mode: str = "constant"
) -> Tensor:
    axes = [axis % x.dim() for axis in axes] if axes is not None else list(range(x.dim()))
    both = {axis: (pads[i], pads[len(axes) + i]) for i, axis in enumerate(axes)}
    first = min((axis for axis, two in both.items() if any(_is_not_zero(n) for n in two)), default=x.dim())
    flat = [n for axis in reversed(range(first, x.dim())) for n in both.get(axis, (0, 0))]
    if not flat:
        return x
    if mode == "constant":
        return F.pad(x, flat, "constant", 0 if value is None else _number_in(value))
    return F.pad(x, flat, {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}[mode])


def _is_not_zero(n: Any) -> bool:
    return not (isinstance(n, int) and n == 0)


def _number_in(value: Any) -> Any:
    if isinstance(value, Tensor):
        raise TypeError("its value is computed from data, and must be known")
    return value


@onnx_op("ConstantOfShape")
def _constant_of_shape(shape: Ints, *, value: Any = None) -> Tensor:
    if value is None:
        return torch.zeros(shape, dtype=torch.float32)
    return torch.full(shape, value.number, dtype=value.dtype)


@onnx_op("OneHot")
def one_hot(indices: Tensor, depth: KnownNumber, values: Tensor, *, axis: int = -1) -> Tensor:
    depth = int(depth) if isinstance(depth, float) else depth
    places = _from_the_front(indices.long(), depth)
    axis = axis % (indices.dim() + 1)
    shape = [1] * (indices.dim() + 1)
    shape[axis] = depth
    return torch.where(places.unsqueeze(axis) == torch.arange(depth).reshape(shape), values[1], values[0])


@onnx_op("NonZero")
def non_zero(x: Tensor) -> Tensor:
    return torch.nonzero(x).t()


@onnx_op("Trilu")
def trilu(x: Tensor, k: KnownNumber = 0, *, upper: int = 1) -> Tensor:
    return torch.triu(x, k) if upper else torch.tril(x, k)


@onnx_op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    parts = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


@onnx_op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_unshuffle(x, blocksize)
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@onnx_op("SequenceConstruct")
def sequence(*x: Tensor) -> list[Tensor]:
    return list(x)


@onnx_op("SequenceEmpty")
def no_sequence(*, dtype: int = 1) -> list[Tensor]:
    return []


@onnx_op("SequenceInsert")
def inserted(x: Any, item: Tensor, position: KnownNumber | None = None) -> list[Tensor]:
    made = list(x)
    made.insert(len(made) if position is None else position, item)
    return made


@onnx_op("SequenceAt")
def sequence_at(x: Any, position: KnownNumber) -> Tensor:
    return x[position]


@onnx_op("SequenceLength")
def sequence_length(x: Any) -> KnownArray:
    return known_array(len(x))


@onnx_op("SplitToSequence")
def split_to_sequence(x: Tensor, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    if split is None:
        return [part if keepdims else part.squeeze(axis) for part in torch.split(x, 1, axis)]
    sizes = split.values.reshape(-1).tolist()
    return list(torch.split(x, sizes if split.values.ndim else sizes[0], axis))


@onnx_op("ConcatFromSequence")
def concat_from_sequence(x: Any, *, axis: int, new_axis: int = 0) -> Tensor:
    return torch.stack(x, axis) if new_axis else torch.cat(x, axis)

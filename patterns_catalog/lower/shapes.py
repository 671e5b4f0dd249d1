"""Views, permutations, slices, joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.numbers import exact_fill
from patterns_catalog.sizes import (
    END,
    Size,
    from_front,
    plus,
    product,
    size_of,
    sizes_of,
    typed,
    view_sizes,
    wanted_sizes,
)
from patterns_catalog.slices import slice_axis


@lowering(
    "aten.view", "aten.reshape", "aten._unsafe_view", examples=[example("2x6xf32", [3, 4]), example("6xf32", [-1, 2])]
)
def view(op: OpView, c: Coreai) -> Value:
    "the same values in another shape"
    given = op.size if "size" in op.arguments else op.shape
    return c.reshape(op["self"], view_sizes(op.result.shape, given))


@lowering("aten.sym_size.int", examples=[example("2x3xf32", 1), example("2x3xf32", -1)])
def sym_size(op: OpView, c: Coreai) -> Value:
    "the size of one axis"
    x = op["self"]
    x = c.real_part(x) if x.dtype == "complex<f32>" else x
    return c.cast(size_of(c, x, op.dim), op.result.element_type)


@lowering("aten.permute", examples=[example("2x3x4xf32", [2, 0, -2])])
def permute(op: OpView, c: Coreai) -> Value:
    "the axes in another order"
    x = op["self"]
    permutation = [dim % x.rank for dim in op.dims]
    return c.transpose(x, permutation) if permutation != sorted(permutation) else x


@lowering("aten.unsqueeze", examples=[example("2x3xf32", 1), example("2x3xf32", -1), example("f32", 0)])
def unsqueeze(op: OpView, c: Coreai) -> Value:
    "a new axis of size 1"
    return c.expand_dims(op["self"], [op.dim % (op["self"].rank + 1)])


@lowering("aten.squeeze.dims", "aten.squeeze.dim", "aten.squeeze", examples=[
    example("1x3x1xf32", [0, -1]), example("2x1xf32", [0, 1]), example("1x3xf32", 0, op="aten.squeeze.dim"),
])  # fmt: skip
def squeeze(op: OpView, c: Coreai) -> Value:
    "dimensions that are not 1 stay, as in PyTorch"
    x = op["self"]
    dims = op.dim if "dim" in op.arguments else list(range(x.rank))
    listed = dims if isinstance(dims, list) else [dims]
    axes = sorted({dim % x.rank for dim in listed if x.rank and x.shape[dim % x.rank] == 1})
    if op.result.rank < x.rank - len(axes):  # export knows that dynamic dimensions are 1, by guards
        return c.reshape(x, view_sizes(op.result.shape, _without_open(op, c, x, listed, axes)))
    return c.shrink_dims(x, axes) if axes else x


def _without_open(op: OpView, c: Coreai, x: Value, listed: list[int], axes: list[int]) -> list[Size]:
    """The sizes that are left if all listed dynamic dimensions are removed, too."""
    gone = {*axes, *(dim % x.rank for dim in listed if x.shape[dim % x.rank] is None)}
    op.expect(op.result.rank == x.rank - len(gone), "squeeze needs to know which dynamic dimensions have size 1")
    return [size for axis, size in enumerate(sizes_of(c, x)) if axis not in gone]


@lowering("aten.expand", examples=[example("3x1xf32", [2, -1, 4]), example("1x3xf32", [2, 3])])
def expand(op: OpView, c: Coreai) -> Value:
    "axes of size 1 repeated, new ones in front"
    op.ignore("implicit", because="it only concerns functorch")
    return expanded(c, op["self"], op.result.shape, op.size)


def expanded(c: Coreai, x: Value, shape: Shape, given: Sequence[Any]) -> Value:
    """`x` broadcast to a shape, with the sizes where that is dynamic."""
    sizes = wanted_sizes(shape, given)
    if None not in shape:
        return c.broadcast_to(x, sizes)
    new = list(range(len(shape) - x.rank))
    x = c.expand_dims(x, new) if new else x
    axes = [axis for axis, size in enumerate(x.shape) if size == 1 and shape[axis] != 1]
    return c.broadcast_in_dims(x, [sizes[axis] for axis in axes], axes) if axes else x


@lowering("aten.repeat_interleave.self_int", examples=[
    example("2x3x1xf32", 2, 1), example("2x3xf32", 3, -1), example("2x3xf32", 2),
])  # fmt: skip
def repeat_interleave(op: OpView, c: Coreai) -> Value:
    "each element several times in a row, along one axis or of the flat tensor"
    x = op["self"]
    op.ignore("output_size", because="the result type has it")
    if op.dim is None:
        x = c.reshape(x, [-1])
    axis = op.dim % x.rank if op.dim is not None else 0
    wide = c.broadcast_in_dims(c.expand_dims(x, [axis + 1]), [op.repeats], [axis + 1])
    sizes = sizes_of(c, x)
    sizes[axis] = product(c, [sizes[axis], op.repeats])
    return c.reshape(wide, view_sizes(op.result.shape, sizes))


@lowering("aten.slice.Tensor", examples=[
    example("8x3xf32", 0, 1, 6, 2), example("8x3xf32", -1, -2, 9223372036854775807), example("8xf32", 0, None, -1),
])  # fmt: skip
def slice_(op: OpView, c: Coreai) -> Value:
    "every step-th position of one axis between two bounds"
    x = op["self"]
    dim = op.dim % x.rank
    size = x.shape[dim]
    bounds = (op.start, op.end, op.step)
    if size is not None and not any(isinstance(bound, Value) for bound in bounds):
        start, end, step = slice(*bounds).indices(size)
        return slice_axis(c, x, dim, start, max(start, end), step)
    start, end, step = (clamped(bound, missing) for bound, missing in zip(bounds, (0, END, 1), strict=True))
    return slice_axis(c, x, dim, start, end, step, result_type=op.result)


def clamped(bound: Any, missing: int) -> Any:
    """A slice bound in the 32 bits that the runtime has; far ones stay outside."""
    if bound is None:
        return missing
    return bound if isinstance(bound, Value) else max(-END, min(bound, END))


@lowering("aten.select.int", examples=[example("2x3x4xf32", 1, -1), example("3xf32", 0, 2)])
def select(op: OpView, c: Coreai) -> Value:
    "one position of an axis, which goes away"
    x = op["self"]
    dim = op.dim % x.rank
    index, end = position_bounds(c, x, dim, op["index"])
    one = [*x.shape[:dim], 1, *x.shape[dim + 1 :]]
    return c.shrink_dims(slice_axis(c, x, dim, index, end, result_type=tensor(one, x.element_type)), [dim])


def position_bounds(c: Coreai, x: Value, axis: int, position: Size) -> tuple[Size, Size]:
    """The bounds of a slice of one position, which may count from the end."""
    if isinstance(position, int) and position >= 0:
        return position, position + 1
    start = from_front(c, position, size_of(c, x, axis))
    return start, plus(c, start, 1)


@lowering("aten.flip", examples=[example("2x3x4xf32", [0, -1]), example("2x3xf32", []), example("f32", [0])])
def flip(op: OpView, c: Coreai) -> Value:
    "the listed dimensions from their end"
    x, dims = op["self"], op.dims
    axes = [dim % x.rank for dim in dims] if x.rank else []
    return c.reverse(x, axes) if axes else x


@lowering("aten.cat", examples=[example(["2x3xf32", "2x1xf32"], 1)])
def cat(op: OpView, c: Coreai) -> Value:
    "a 1-d tensor without elements joins anything, as in PyTorch"
    rank = op.result.rank
    dim = op.dim % rank
    parts = [part for part in op.tensors if part.rank == rank and part.shape[dim] != 0]
    op.expect(bool(parts), "a concatenation of only empty tensors is not supported")
    around = op.result.shape
    parts = [c.cast(part, op.result.element_type) for part in parts]
    parts = [typed(c, part, (*around[:dim], part.shape[dim], *around[dim + 1 :])) for part in parts]
    return parts[0] if len(parts) == 1 else c.concat(dim, parts)


@lowering("aten.split_with_sizes", examples=[example("7x2xf32", [3, 4]), example("2x6xf32", [1, 2, 3], -1)])
def split_with_sizes(op: OpView, c: Coreai) -> list[Value]:
    "consecutive parts of one axis"
    x = op["self"]
    dim = op.dim % x.rank
    if any(isinstance(size, Value) for size in op.split_sizes):
        sizes = [c.cast(size, "si32") for size in op.split_sizes]
        starts: list[Size] = [0, *accumulate(sizes, c.broadcasting_add)]
        return [
            slice_axis(c, x, dim, start, end, result_type=type_)
            for (start, end), type_ in zip(pairwise(starts), op.results, strict=True)
        ]
    if 0 in op.split_sizes:  # the runtime's split has no empty parts
        starts = np.cumsum([0, *op.split_sizes]).tolist()
        return [slice_axis(c, x, dim, start, start + size) for start, size in zip(starts, op.split_sizes, strict=False)]
    return c.split(x, np.array(op.split_sizes, dtype=np.uint32), dim)


@lowering("aten.constant_pad_nd", examples=[example("2x3xf32", [1, 2]), example("2x3xf32", [-1, 1, 0, 2], 0.5)])
def constant_pad_nd(op: OpView, c: Coreai) -> Value:
    "negative padding cuts, after all else is padded, so that nothing is empty in between"
    x = op["self"]
    value = c.constant(exact_fill(op.value, x.element_type), x.element_type)
    amounts = padding_of_axes(op.pad, x.rank)
    padding = [_positive_part(c, amount) for amount in amounts]
    if any(amount != 0 for amount in padding):
        x = c.pad(x, padding, value, padding_mode="constant")
    for axis in reversed(range(x.rank)):
        first, last = (_negative_part(c, amount) for amount in amounts[2 * axis : 2 * axis + 2])
        if isinstance(first, Value) or isinstance(last, Value):
            size = c.cast(size_of(c, x, axis), "si32")
            x = slice_axis(c, x, axis, first, c.broadcasting_sub(size, last))
        elif first or last:
            x = slice_axis(c, x, axis, first, cut_end(x.shape[axis], last))
    return x


def padding_of_axes(padding: Sequence[Any], rank: int) -> list[Any]:
    """The amounts before and after each axis, from the first axis on; PyTorch's start at the last one."""
    pairs = [padding[index : index + 2] for index in range(0, len(padding), 2)]
    return [0] * (2 * rank - len(padding)) + [amount for pair in reversed(pairs) for amount in pair]


def _positive_part(c: Coreai, amount: Size) -> Size:
    return max(0, amount) if isinstance(amount, int) else c.broadcasting_maximum(c.cast(amount, "si32"), 0)


def _negative_part(c: Coreai, amount: Size) -> Size:
    return max(0, -amount) if isinstance(amount, int) else _positive_part(c, c.broadcasting_mul(amount, -1))


def cut_end(size: int | None, amount: int) -> int:
    """The end of a slice that leaves out the last elements of an axis."""
    return size - amount if size is not None else -amount if amount else END


@lowering("aten.as_strided", examples=[example("12xf32", [3, 4], [4, 1], 0), example("12xf32", [3, 2], [2, 3], 1)])
def as_strided(op: OpView, c: Coreai) -> Value:
    "of a flat tensor (the importer flattens): a slice when the strides are those of a dense tensor, else a gather"
    x, size, stride = op["self"], op.size, op.stride
    offset = op.storage_offset or 0
    op.expect(x.rank == 1, "as_strided needs a 1-d input here, because the importer flattens it")
    numbers = all(isinstance(number, int) for number in (*size, *stride, offset))
    op.expect(x.is_static and numbers, "as_strided needs static sizes and strides; use slices or views instead")
    positions = np.full(size, offset, dtype=np.int64)
    for axis, step in enumerate(stride):
        shape = [1] * len(size)
        shape[axis] = size[axis]
        positions = positions + np.arange(size[axis]).reshape(shape) * step
    op.expect(
        positions.size == 0 or (positions.min() >= 0 and positions.max() < x.shape[0]),
        "as_strided must not read memory outside of its input",
    )
    count = math.prod(size)
    if np.array_equal(positions.reshape(-1), np.arange(offset, offset + count)):
        part = x if count == x.shape[0] else slice_axis(c, x, 0, offset, offset + count)
        return c.reshape(part, size)
    return c.gather_nd(x, c.constant(positions[..., None].astype(np.int32)))

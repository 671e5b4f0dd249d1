"""Views, permutations, slices, joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import OpView, call, example, formula, lowering
from patterns_catalog.lower.rows import row
from patterns_catalog.numbers import exact_fill
from patterns_catalog.sizes import (
    END,
    Size,
    broadcast_sizes,
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

_COMPLEX = "complex<f32>"


@formula("lower", "aten.view", examples=[example("2x6xf32", [3, 4]), example("6xf32", [-1, 2])])
def view(c: Coreai, self: Value, size: Sequence[Size], result: ValueType) -> Value:
    "the same values in another shape"
    return c.reshape(self, view_sizes(result.shape, size))


@formula("lower", "aten.sym_size.int", where=lambda self: [self.dtype != _COMPLEX], examples=[
    example("2x3xf32", 1), example("2x3xf32", -1),
])  # fmt: skip
def sym_size(c: Coreai, self: Value, dim: int, result: ValueType) -> Value:
    "the size of one axis"
    return c.cast(size_of(c, self, dim), result.element_type)


sym_size_of_complex = formula(
    "lower", "aten.sym_size.int", name="sym_size of complex numbers", where=lambda self: [self.dtype == _COMPLEX],
    examples=[example("2x3xcomplex<f32>", 1)],
    doc="the size of one axis, which the real part has as well",
)(lambda c, self, dim, result: c.cast(size_of(c, c.real_part(self), dim), result.element_type))  # fmt: skip


@formula("lower", "aten.permute", examples=[example("2x3x4xf32", [2, 0, -2])])
def permute(c: Coreai, self: Value, dims: Sequence[int]) -> Value:
    "the axes in another order"
    return axes_in_order(c, self, [dim % self.rank for dim in dims])


def axes_in_order(c: Coreai, x: Value, order: Sequence[int]) -> Value:
    """The axes in an order that may be theirs already."""
    return c.transpose(x, order) if list(order) != sorted(order) else x


@formula("lower", "aten.unsqueeze", examples=[example("2x3xf32", 1), example("2x3xf32", -1), example("f32", 0)])
def unsqueeze(c: Coreai, self: Value, dim: int) -> Value:
    "a new axis of size 1"
    return c.expand_dims(self, [dim % (self.rank + 1)])


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


@formula(
    "lower", "aten.expand", ignored={"implicit": "it only concerns functorch"},
    examples=[example("3x1xf32", [2, -1, 4]), example("1x3xf32", [2, 3])],
)  # fmt: skip
def expand(c: Coreai, self: Value, size: Sequence[Size], result: ValueType) -> Value:
    "axes of size 1 repeated, new ones in front"
    return expanded(c, self, result.shape, size)


def of_rank(c: Coreai, x: Value, rank: int) -> Value:
    """A tensor with new axes of size 1 in front, up to a rank."""
    new = list(range(rank - x.rank))
    return c.expand_dims(x, new) if new else x


def expanded(c: Coreai, x: Value, shape: Shape, given: Sequence[Any]) -> Value:
    """`x` broadcast to a shape, with the sizes where that is dynamic."""
    sizes = wanted_sizes(shape, given)
    if None not in shape:
        return c.broadcast_to(x, sizes)
    x = of_rank(c, x, len(shape))
    axes = [axis for axis, size in enumerate(x.shape) if size == 1 and shape[axis] != 1]
    return c.broadcast_in_dims(x, [sizes[axis] for axis in axes], axes) if axes else x


def broadcast_like(c: Coreai, x: Value, other: Value) -> Value:
    """`x` broadcast to the shape of another tensor."""
    return x if x.shape == other.shape else expanded(c, x, other.shape, sizes_of(c, other))


def as_vector(c: Coreai, x: Value) -> Value:
    """A 0-d tensor as one of one element; any other tensor itself."""
    return x if x.rank else c.reshape(x, [1])


def broadcast_together(c: Coreai, values: Sequence[Value]) -> list[Value]:
    """Values broadcast to the shape that they have together."""
    shape = broadcast_shapes(*(value.shape for value in values))
    if all(value.shape == shape for value in values):
        return list(values)
    sizes = broadcast_sizes(c, values)
    return [value if value.shape == shape else expanded(c, value, shape, sizes) for value in values]


_INTERLEAVED = {"output_size": "the result type has it"}


@formula(
    "lower", "aten.repeat_interleave.self_int", ignored=_INTERLEAVED, where=lambda dim: [~dim.is_in(None)],
    examples=[example("2x3x1xf32", 2, 1), example("2x3xf32", 3, -1)],
)  # fmt: skip
def repeat_interleave(c: Coreai, self: Value, repeats: Size, dim: int, result: ValueType) -> Value:
    "each element several times in a row, along one axis"
    return _interleaved(c, self, repeats, dim % self.rank, result)


repeat_interleave_of_all = formula(
    "lower", "aten.repeat_interleave.self_int", name="repeat_interleave of all", ignored=_INTERLEAVED,
    where=lambda dim: [dim.is_in(None)], examples=[example("2x3xf32", 2)],
    doc="each element of the flat tensor several times in a row",
)(lambda c, self, repeats, result: _interleaved(c, c.reshape(self, [-1]), repeats, 0, result))  # fmt: skip


def _interleaved(c: Coreai, x: Value, repeats: Size, axis: int, result: ValueType) -> Value:
    wide = c.broadcast_in_dims(c.expand_dims(x, [axis + 1]), [repeats], [axis + 1])
    sizes = sizes_of(c, x)
    sizes[axis] = product(c, [sizes[axis], repeats])
    return c.reshape(wide, view_sizes(result.shape, sizes))


@formula("lower", "aten.slice.Tensor", examples=[
    example("8x3xf32", 0, 1, 6, 2), example("8x3xf32", -1, -2, 9223372036854775807), example("8xf32", 0, None, -1),
])  # fmt: skip
def slice_(c: Coreai, self: Value, dim: int, start: Any, end: Any, step: Size, result: ValueType) -> Value:
    "every step-th position of one axis between two bounds"
    return slice_axis(c, self, dim % self.rank, *slice_bounds(self, dim, start, end, step), result_type=result)


def slice_bounds(x: Value, dim: int, *given: Size | None) -> tuple[Size, Size, Size]:
    """Start, end and step of a slice, from the front where they and the size are known. Otherwise far bounds stay
    outside, in the 32 bits that the runtime has."""
    size = x.shape[dim]
    bounds = [default if bound is None else bound for bound, default in zip(given, (0, END, 1), strict=True)]
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    if size is not None and len(numbers) == 3:
        start, end, step = slice(*numbers).indices(size)
        return start, max(start, end), step
    first, last, by = (bound if isinstance(bound, Value) else max(-END, min(bound, END)) for bound in bounds)
    return first, last, by


@formula("lower", "aten.select.int", examples=[example("2x3x4xf32", 1, -1), example("3xf32", 0, 2)])
def select(c: Coreai, self: Value, dim: int, index: Size) -> Value:
    "one position of an axis, which goes away"
    dim %= self.rank
    one = tensor([*self.shape[:dim], 1, *self.shape[dim + 1 :]], self.element_type)
    part = slice_axis(c, self, dim, *position_bounds(c, self, dim, index), result_type=one)
    return c.shrink_dims(part, [dim])


def position_bounds(c: Coreai, x: Value, axis: int, position: Size) -> tuple[Size, Size]:
    """The bounds of a slice of one position, which may count from the end."""
    if isinstance(position, int) and position >= 0:
        return position, position + 1
    start = from_front(c, position, size_of(c, x, axis))
    return start, plus(c, start, 1)


@formula(
    "lower", "aten.flip", where=lambda self, dims: [self.rank > 0, dims != []],
    examples=[example("2x3x4xf32", [0, -1])],
)  # fmt: skip
def flip(c: Coreai, self: Value, dims: Sequence[int]) -> Value:
    "the listed dimensions from their end"
    return c.reverse(self, [dim % self.rank for dim in dims])


flip_of_nothing = row(
    "flip", lambda c, x: x, example("2x3xf32", []), example("f32", [0]), name="flip of nothing",
    where=lambda self, dims: [(self.rank == 0) | (dims == [])], doc="no dimension is flipped",
)  # fmt: skip


def _joined(tensors: Sequence[Value], dim: int, rank: int) -> list[Value]:
    """The tensors that have elements; a 1-d tensor without elements joins anything, as in PyTorch."""
    return [part for part in tensors if part.rank == rank and part.shape[dim % rank] != 0]


@formula("lower", "aten.cat", where=lambda tensors, dim, result: [
    (call(_joined, tensors, dim, result.rank) != []).says("a concatenation of only empty tensors is not supported"),
], examples=[example(["2x3xf32", "2x1xf32"], 1)])  # fmt: skip
def cat(c: Coreai, tensors: Sequence[Value], dim: int, result: ValueType) -> Value:
    "the tensors that have elements, one after the other"
    dim %= result.rank
    before, after = result.shape[:dim], result.shape[dim + 1 :]
    parts = [c.cast(part, result.element_type) for part in _joined(tensors, dim, result.rank)]
    return _concatenated(c, dim, [typed(c, part, (*before, part.shape[dim], *after)) for part in parts])


def _concatenated(c: Coreai, axis: int, parts: Sequence[Value]) -> Value:
    """Tensors one after the other along an axis; a single one itself."""
    return parts[0] if len(parts) == 1 else c.concat(axis, parts)


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

"""Views, permutations, slices, joins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.numbers import exact_fill

_END = 2**31 - 1
"""As a slice bound: to the end, whatever the size."""


@lowering(
    "aten.view", "aten.reshape", "aten._unsafe_view", examples=[example("2x6xf32", [3, 4]), example("6xf32", [-1, 2])]
)
def view(op: OpView, c: Any) -> Value:
    "the same values in another shape"
    op.ignore("size" if "size" in op.arguments else "shape", because="the result type has it")
    op.expect(None not in op.result.shape, "a view with a dynamic shape")
    return c.reshape(op["self"], list(op.result.shape))


@lowering("aten.permute", examples=[example("2x3x4xf32", [2, 0, -2])])
def permute(op: OpView, c: Any) -> Value:
    "the axes in another order"
    x = op["self"]
    permutation = [dim % x.rank for dim in op.dims]
    return c.transpose(x, permutation) if permutation != sorted(permutation) else x


@lowering("aten.unsqueeze", examples=[example("2x3xf32", 1), example("2x3xf32", -1), example("f32", 0)])
def unsqueeze(op: OpView, c: Any) -> Value:
    "a new axis of size 1"
    return c.expand_dims(op["self"], [op.dim % (op["self"].rank + 1)])


@lowering("aten.squeeze.dims", "aten.squeeze.dim", "aten.squeeze", examples=[
    example("1x3x1xf32", [0, -1]), example("2x1xf32", [0, 1]), example("1x3xf32", 0, op="aten.squeeze.dim"),
])  # fmt: skip
def squeeze(op: OpView, c: Any) -> Value:
    "dimensions that are not 1 stay, as in PyTorch"
    x = op["self"]
    dims = op.dim if "dim" in op.arguments else list(range(x.rank))
    listed = dims if isinstance(dims, list) else [dims]
    axes = sorted({dim % x.rank for dim in listed if x.rank and x.shape[dim % x.rank] == 1})
    return c.shrink_dims(x, axes) if axes else x


@lowering("aten.expand", examples=[example("3x1xf32", [2, -1, 4]), example("1x3xf32", [2, 3])])
def expand(op: OpView, c: Any) -> Value:
    "axes of size 1 repeated, new ones in front"
    op.ignore("size", because="the result type has it")
    op.ignore("implicit", because="it only concerns functorch")
    op.expect(None not in op.result.shape, "an expand to a dynamic shape")
    return c.broadcast_to(op["self"], list(op.result.shape))


@lowering("aten.repeat_interleave.self_int", examples=[
    example("2x3x1xf32", 2, 1), example("2x3xf32", 3, -1), example("2x3xf32", 2),
])  # fmt: skip
def repeat_interleave(op: OpView, c: Any) -> Value:
    "each element several times in a row, along one axis or of the flat tensor"
    x = op["self"]
    op.ignore("output_size", because="the result type has it")
    op.expect(x.is_static and isinstance(op.repeats, int), "a repeat_interleave of a dynamic shape")
    if op.dim is None:
        x = c.reshape(x, [-1])
    axis = op.dim % x.rank if op.dim is not None else 0
    wide = c.broadcast_in_dims(c.expand_dims(x, [axis + 1]), [op.repeats], [axis + 1])
    return c.reshape(wide, list(op.result.shape))


@lowering("aten.slice.Tensor", examples=[
    example("8x3xf32", 0, 1, 6, 2), example("8x3xf32", -1, -2, 9223372036854775807), example("8xf32", 0, None, -1),
])  # fmt: skip
def slice_(op: OpView, c: Any) -> Value:
    "every step-th position of one axis between two bounds"
    x = op["self"]
    dim = op.dim % x.rank
    size = x.shape[dim]
    bounds = (op.start, op.end, op.step)
    op.expect(
        size is not None and all(bound is None or isinstance(bound, int) for bound in bounds),
        "a slice of a dynamic dimension or with bounds known only at run time",
    )
    start, end, step = slice(*bounds).indices(size)
    return slice_axis(c, x, dim, start, max(start, end), step)


def slice_axis(c: Any, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    """`x[..., start:end:step, ...]` along one axis, bounds counted from the front."""
    starts, ends, steps = [0] * x.rank, [_END] * x.rank, [1] * x.rank
    starts[axis], ends[axis], steps[axis] = start, end, step
    return c.slice_(x, starts, ends, steps)


@lowering("aten.select.int", examples=[example("2x3x4xf32", 1, -1), example("3xf32", 0, 2)])
def select(op: OpView, c: Any) -> Value:
    "one position of an axis, which goes away"
    x = op["self"]
    dim = op.dim % x.rank
    op.expect(isinstance(op.index, int) and x.shape[dim] is not None, "a select at a position known only at run time")
    index = op.index % x.shape[dim]
    return c.shrink_dims(slice_axis(c, x, dim, index, index + 1), [dim])


@lowering("aten.flip", examples=[example("2x3x4xf32", [0, -1]), example("2x3xf32", []), example("f32", [0])])
def flip(op: OpView, c: Any) -> Value:
    "the listed dimensions from their end"
    x, dims = op["self"], op.dims
    axes = [dim % x.rank for dim in dims] if x.rank else []
    return c.reverse(x, axes) if axes else x


@lowering("aten.cat", examples=[example(["2x3xf32", "2x1xf32"], 1)])
def cat(op: OpView, c: Any) -> Value:
    "a 1-d tensor without elements joins anything, as in PyTorch"
    rank = op.result.rank
    dim = op.dim % rank
    parts = [part for part in op.tensors if part.rank == rank and part.shape[dim] != 0]
    op.expect(bool(parts), "a concatenation of nothing but empty tensors of a dynamic shape")
    parts = [c.cast(part, op.result.element_type) for part in parts]
    return parts[0] if len(parts) == 1 else c.concat(dim, parts)


@lowering("aten.split_with_sizes", examples=[example("7x2xf32", [3, 4]), example("2x6xf32", [1, 2, 3], -1)])
def split_with_sizes(op: OpView, c: Any) -> list[Value]:
    "consecutive parts of one axis"
    x = op["self"]
    dim = op.dim % x.rank
    if 0 in op.split_sizes:  # the runtime's split has no empty parts
        starts = np.cumsum([0, *op.split_sizes]).tolist()
        return [slice_axis(c, x, dim, start, start + size) for start, size in zip(starts, op.split_sizes, strict=False)]
    return c.split(x, np.array(op.split_sizes, dtype=np.uint32), dim)


@lowering("aten.constant_pad_nd", examples=[example("2x3xf32", [1, 2]), example("2x3xf32", [-1, 1, 0, 2], 0.5)])
def constant_pad_nd(op: OpView, c: Any) -> Value:
    "negative padding cuts"
    x = op["self"]
    value = c.constant(exact_fill(op.value, x.element_type), x.element_type)
    before, after = [0] * x.rank, [0] * x.rank
    for index in range(len(op.pad) // 2):
        axis = x.rank - 1 - index
        before[axis], after[axis] = op.pad[2 * index], op.pad[2 * index + 1]
        if min(before[axis], after[axis]) < 0:
            size = x.shape[axis]
            op.expect(size is not None, "negative padding of a dynamic dimension")
            x = slice_axis(c, x, axis, max(0, -before[axis]), size - max(0, -after[axis]))
    padding = [max(0, amount) for pair in zip(before, after, strict=True) for amount in pair]
    return c.pad(x, padding, value, padding_mode="constant") if any(padding) else x


@lowering("aten.as_strided", examples=[example("12xf32", [3, 4], [4, 1], 0), example("12xf32", [3, 2], [2, 3], 1)])
def as_strided(op: OpView, c: Any) -> Value:
    "of a flat tensor (the importer flattens): a slice when the strides are those of a dense tensor, else a gather"
    x, size, stride = op["self"], op.size, op.stride
    offset = op.storage_offset or 0
    op.expect(x.rank == 1 and x.is_static, "as_strided of a tensor that is not flat")
    positions = np.full(size, offset, dtype=np.int64)
    for axis, step in enumerate(stride):
        shape = [1] * len(size)
        shape[axis] = size[axis]
        positions = positions + np.arange(size[axis]).reshape(shape) * step
    op.expect(
        positions.size == 0 or (positions.min() >= 0 and positions.max() < x.shape[0]),
        "as_strided that reads memory outside of its input",
    )
    count = math.prod(size)
    if np.array_equal(positions.reshape(-1), np.arange(offset, offset + count)):
        part = x if count == x.shape[0] else slice_axis(c, x, 0, offset, offset + count)
        return c.reshape(part, size)
    return c.gather_nd(x, c.constant(positions[..., None].astype(np.int32)))

"""Embeddings, gathers and advanced indexing."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.sizes import END, broadcast_sizes, size_of, sizes_of, wanted_sizes


def take(c: Coreai, x: Value, axis: int, indices: Value | np.ndarray) -> Value:
    """Slices of `x` along an axis at 1-d `indices`."""
    front = [axis, *(other for other in range(x.rank) if other != axis)]
    moved = c.transpose(x, front) if axis else x
    index = indices if isinstance(indices, Value) else c.constant(indices.astype(np.int32))
    taken = c.gather_nd(moved, c.expand_dims(index, [1]))
    return c.transpose(taken, np.argsort(front).tolist()) if axis else taken


def as_index(c: Coreai, value: Value) -> Value:
    """Indices in the element type that the runtime's gathers take."""
    return value if value.dtype == "si32" else c.cast(value, "si32")


@lowering("aten.embedding", examples=[example("7x3xf32", "2x4xsi64[0,6]"), example("7x3xf32", "si64[0,6]", 2)])
def embedding(op: OpView, c: Coreai) -> Value:
    "rows of the weight"
    op.ignore("padding_idx", "scale_grad_by_freq", "sparse", because="they only concern gradients")
    indices = as_index(c, op.indices)
    return c.gather_nd(op.weight, c.expand_dims(indices, [indices.rank]))


@lowering("aten.index_select", examples=[
    example("2x5xf32", 1, "3xsi64[0,4]"), example("2x5xf32", 0, "si64[0,1]"), example("f32", 0, "1xsi64[0,0]"),
])  # fmt: skip
def index_select(op: OpView, c: Coreai) -> Value:
    "slices along a dimension; 0-d tensors count as tensors of one element"
    x, shape = op["self"], list(op.result.shape)
    if x.rank == 0:
        op.ignore("dim", "index", because="a 0-d tensor has one value")
        return c.broadcast_to(x, wanted_sizes(op.result.shape, sizes_of(c, op.index))) if shape else x
    index = op.index if op.index.rank == 1 else c.reshape(op.index, [1])
    return take(c, x, op.dim % x.rank, as_index(c, index))


@lowering("aten.gather", examples=[
    example("2x5xf32", 1, "2x3xsi64[0,4]"), example("4x5xf32", 0, "2x3xsi64[0,3]"), example("5xf32", 0, "si64[0,4]"),
])  # fmt: skip
def gather(op: OpView, c: Coreai) -> Value:
    "the index may be smaller than the input outside of `dim`"
    op.ignore("sparse_grad", because="it only concerns gradients")
    x, index = op["self"], as_index(c, op.index)
    if x.rank == 0:
        op.ignore("dim", because="a 0-d tensor has one value")
        return c.broadcast_to(x, sizes_of(c, index)) if index.rank else x
    if index.rank == 0:
        op.ignore("dim", because="with a 0-d index the input has one dimension")
        return c.gather_nd(x, c.reshape(index, [1]))
    dim = op.dim % x.rank
    # PyTorch takes an index smaller than x, the runtime only one of equal sizes
    ends = [END if axis == dim else size_of(c, index, axis) for axis in range(x.rank)]
    if not all(
        axis == dim or (size == end and isinstance(end, int))
        for axis, (size, end) in enumerate(zip(x.shape, ends, strict=True))
    ):
        x = c.slice_(x, [0] * x.rank, ends, [1] * x.rank)
    return c.gather_along_axis(x, index, dim)


@lowering("aten.index.Tensor", examples=[
    example("4x5xf32", ["3xsi64[-4,3]"]), example("4x5xf32", ["2x1xsi64[0,3]", "3xsi64[0,4]"]),
    example("2x4x5xf32", [None, "3xsi64[0,3]"]), example("2x3x4xf32", ["2xsi64[0,1]", None, "2xsi64[0,3]"]),
])  # fmt: skip
def index(op: OpView, c: Coreai) -> Value:
    """`x[i, :, j]` with integer tensors: a gather over the indexed dimensions, brought to the front.

    The indexed dimensions take the place of the first one where they are adjacent, else the front.
    """
    x = op["self"]
    given = list(op.indices) + [None] * (x.rank - len(op.indices))
    axes = [axis for axis, item in enumerate(given) if item is not None]
    tensors = [item for item in given if item is not None]
    # uint8 indices are masks in PyTorch
    op.expect(all(item.dtype in ("si32", "si64") for item in tensors), "indexing needs int32 or int64 indices here")
    op.expect(bool(tensors), "indexing needs at least one index tensor")
    shape = broadcast_shapes(*(item.shape for item in tensors))
    sizes = broadcast_sizes(c, tensors) if len(tensors) > 1 else []
    columns = []
    for item in tensors:
        item = as_index(c, item)
        item = item if len(tensors) == 1 or (item.shape == shape and item.is_static) else c.broadcast_to(item, sizes)
        columns.append(c.expand_dims(item, [len(shape)]))
    joined = columns[0] if len(columns) == 1 else c.concat(len(shape), columns)
    rest = [axis for axis in range(x.rank) if axis not in axes]
    order = [*axes, *rest]
    moved = c.transpose(x, order) if order != sorted(order) else x
    result = c.gather_nd(moved, joined)
    if axes != list(range(axes[0], axes[-1] + 1)):
        return result
    # adjacent: the broadcast dimensions belong where the first index stood
    count, first = len(shape), axes[0]
    back = [*range(count, count + first), *range(count), *range(count + first, result.rank)]
    return c.transpose(result, back) if back != sorted(back) else result

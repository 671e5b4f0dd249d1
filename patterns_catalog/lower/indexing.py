"""Embeddings, gathers and advanced indexing."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, formula, lowering
from patterns_catalog.lower.shapes import as_vector, axes_in_order
from patterns_catalog.sizes import END, as_index, broadcast_sizes, size_of


def take(c: Coreai, x: Value, axis: int, indices: Value | np.ndarray) -> Value:
    """Slices of `x` along an axis at 1-d `indices`."""
    front = [axis, *(other for other in range(x.rank) if other != axis)]
    moved = c.transpose(x, front) if axis else x
    index = indices if isinstance(indices, Value) else c.constant(indices.astype(np.int32))
    taken = c.gather_nd(moved, c.expand_dims(index, [1]))
    return c.transpose(taken, np.argsort(front).tolist()) if axis else taken


@formula(
    "lower", "aten.embedding", examples=[example("7x3xf32", "2x4xsi64[0,6]"), example("7x3xf32", "si64[0,6]", 2)],
    ignored=dict.fromkeys(("padding_idx", "scale_grad_by_freq", "sparse"), "it only concerns gradients"),
)  # fmt: skip
def embedding(c: Coreai, weight: Value, indices: Value) -> Value:
    "rows of the weight"
    return c.gather_nd(weight, c.expand_dims(as_index(c, indices), [indices.rank]))


NO_VECTOR = "the indices of index_select are a vector"


@formula(
    "lower", "aten.index_select", where=lambda self, index: [self.rank > 0, (index.rank < 2).says(NO_VECTOR)],
    examples=[example("2x5xf32", 1, "3xsi64[0,4]"), example("2x5xf32", 0, "si64[0,1]")],
)  # fmt: skip
def index_select(c: Coreai, self: Value, dim: int, index: Value) -> Value:
    "slices along a dimension; a 0-d index counts as one of one element"
    return take(c, self, dim % self.rank, as_index(c, as_vector(c, index)))


NO_GRADIENT = {"sparse_grad": "it only concerns gradients"}


@formula(
    "lower", "aten.gather", ignored=NO_GRADIENT, where=lambda self, index: [self.rank > 0, index.rank > 0],
    examples=[example("2x5xf32", 1, "2x3xsi64[0,4]"), example("4x5xf32", 0, "2x3xsi64[0,3]")],
)  # fmt: skip
def gather(c: Coreai, self: Value, dim: int, index: Value) -> Value:
    "the index may be smaller than the input outside of `dim`"
    dim, index = dim % self.rank, as_index(c, index)
    return c.gather_along_axis(_as_wide(c, self, index, dim), index, dim)


def _as_wide(c: Coreai, x: Value, index: Value, dim: int) -> Value:
    """`x` with the sizes of an index outside of a dimension, as the runtime's gather needs it."""
    ends = [END if axis == dim else size_of(c, index, axis) for axis in range(x.rank)]
    known = zip(x.shape, ends, strict=True)
    if all(axis == dim or (size == end and isinstance(end, int)) for axis, (size, end) in enumerate(known)):
        return x
    return c.slice_(x, [0] * x.rank, ends, [1] * x.rank)


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
    result = c.gather_nd(axes_in_order(c, x, order), joined)
    if axes != list(range(axes[0], axes[-1] + 1)):
        return result
    # adjacent: the broadcast dimensions belong where the first index stood
    count, first = len(shape), axes[0]
    back = [*range(count, count + first), *range(count), *range(count + first, result.rank)]
    return axes_in_order(c, result, back)

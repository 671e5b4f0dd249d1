"""Result types of ops that reshape, slice, join, split and broadcast."""

from __future__ import annotations

import math

from patcomp.ir.infer.common import (
    InferredOp,
    RuntimeRefusalError,
    UndeterminedError,
    inference,
    normalize_axis,
    require,
    shape_text,
)
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute


@inference
def _broadcast_to(op: InferredOp) -> list[Attribute]:
    shape, target = op.shape(), op.partial(1)
    if target is None:
        raise UndeterminedError("the length of the target shape must be known")
    require(len(target) >= len(shape), f"cannot broadcast {shape_text(shape)} to the lower rank {shape_text(target)}")
    for dim, wanted in zip(reversed(shape), reversed(target), strict=False):
        fits = dim in (None, 1, wanted) or wanted is None
        require(fits, f"cannot broadcast {shape_text(shape)} to {shape_text(target)}")
    return op.result(target)


@inference
def _broadcast_in_dims(op: InferredOp) -> list[Attribute]:
    shape = list(op.shape())
    axes = op.axes(2, len(shape))
    sizes = op.partial(1)
    if axes is None:
        return op.result((None,) * len(shape))
    for index, axis in enumerate(axes):
        require(shape[axis] in (None, 1), f"dimension {axis} of {shape_text(tuple(shape))} is not 1")
        shape[axis] = sizes[index] if sizes is not None else None
    return op.result(shape)


@inference
def _broadcast_shapes(op: InferredOp) -> list[Attribute]:
    lengths = [op.length(0), op.length(1)]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return op.result((longest,), 0)


@inference
def _concat(op: InferredOp) -> list[Attribute]:
    axis_values = op.integers(0)
    shapes = op.shapes()[1:]
    require(len(shapes) > 0, "concat needs at least one tensor")
    rank = len(shapes[0])
    require(rank > 0, "concat needs tensors of rank 1 or more")
    require(all(len(shape) == rank for shape in shapes), "concat needs tensors of one rank")
    if axis_values is None:
        return op.result((None,) * rank)
    axis = normalize_axis(axis_values[0], rank)
    first = shapes[0]
    for shape in shapes[1:]:
        # a `?` beside a number is refused too, by the native verifier: cast to one type first
        fits = first[:axis] == shape[:axis] and first[axis + 1 :] == shape[axis + 1 :]
        require(fits, f"shapes {shape_text(first)} and {shape_text(shape)} differ outside axis {axis}")
    dims = [shape[axis] for shape in shapes]
    total = None if None in dims else sum(dim for dim in dims if dim is not None)
    return op.result((*first[:axis], total, *first[axis + 1 :]))


@inference
def _expand_dims(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    length = op.length(1)
    require(length is not None, "the number of new axes must be known", UndeterminedError)
    rank = len(shape) + (length or 0)
    axes = op.axes(1, rank)
    if axes is None:
        return op.result((None,) * rank)
    remaining = iter(shape)
    return op.result([1 if axis in axes else next(remaining) for axis in range(rank)])


@inference
def _shrink_dims(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    axes = op.axes(1, len(shape))
    if axes is None:
        length = op.length(1)
        require(length is not None, "the number of dropped axes must be known", UndeterminedError)
        return op.result((None,) * (len(shape) - (length or 0)))
    for axis in axes:
        require(shape[axis] == 1, f"dimension {axis} of {shape_text(shape)} is not 1")
    return op.result([dim for axis, dim in enumerate(shape) if axis not in axes])


@inference
def _get_shape(op: InferredOp) -> list[Attribute]:
    return op.result((len(op.shape()),), "ui32")


@inference
def _pad(op: InferredOp) -> list[Attribute]:
    shape, padding = op.shape(), op.sizes(1, 2 * len(op.shape()), "padding")
    if padding is None:
        return op.result((None,) * len(shape))
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    mode = getattr(op.properties.get("padding_mode"), "data", "constant")
    limits = {"reflect": -1, "symmetric": 0, "circular": 0}
    for axis, (dim, pair) in enumerate(zip(shape, pairs, strict=True)):
        if mode in limits and dim is not None:
            require(max(pair) <= dim + limits[mode], f"{mode} padding {pair} is too large for dimension {axis} ({dim})")
    return op.result([None if dim is None else dim + sum(pair) for dim, pair in zip(shape, pairs, strict=True)])


@inference
def _reshape(op: InferredOp) -> list[Attribute]:
    shape, target = op.shape(), op.partial(1)
    if target is None:
        raise UndeterminedError("the rank of the new shape must be known")
    require(target.count(-1) <= 1, f"new shape {list(target)} has more than one -1")
    if None in target:
        return op.result([None if dim == -1 else dim for dim in target])
    known = math.prod(dim for dim in target if dim is not None and dim != -1)
    count = None if None in shape else math.prod(dim for dim in shape if dim is not None)
    result: list[int | None] = list(target)
    if -1 in target:
        if count is None:
            result[target.index(-1)] = None
        else:
            require(known > 0 and count % known == 0, f"cannot reshape {shape_text(shape)} to {list(target)}")
            result[target.index(-1)] = count // known
    elif count is not None:
        require(count == known, f"cannot reshape {shape_text(shape)} to {list(target)}, of another number of elements")
    return op.result(result)


def sliced_shape(op: InferredOp) -> Shape:
    """The shape of a slice of the first operand; the next three are its starts, ends and strides."""
    shape, bounds = op.shape(), (1, 2, 3)
    types = {str(op.element(bound)) for bound in bounds}
    require(len(types) == 1, "slice bounds of mixed element types abort the runtime", RuntimeRefusalError)
    for bound in bounds:
        require(
            op.length(bound) in (None, len(shape)),
            f"slice bounds need one value for each of {len(shape)} dimensions",
        )
    starts, ends, strides = map(op.partial, bounds)
    if strides is not None:
        require(0 not in strides, "slice strides must not be zero")
    if starts is None or ends is None or strides is None:
        return (None,) * len(shape)
    result: list[int | None] = []
    for dim, start, end, stride in zip(shape, starts, ends, strides, strict=True):
        if dim is None or start is None or end is None or stride is None:
            result.append(None)
            continue
        result.append(len(range(*slice(start, end, stride).indices(dim))))
    return tuple(result)


@inference
def _slice(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    result = sliced_shape(op)
    strides = op.integers(3)
    if strides is not None and min(strides, default=1) < 0 and result == shape:
        message = "the runtime folds a slice that reverses a whole dimension to the identity; use reverse"
        raise RuntimeRefusalError(message)
    return op.result(result)


_MOST_PARTS = 1_000_000
"""More results of one op are a mistake, and their types alone would fill the memory."""


@inference
def _split(op: InferredOp) -> list[Attribute]:
    shape = op.shape()
    sections, axes = op.integers(1), op.axes(2, len(shape))
    require(
        sections is not None and axes is not None,
        "split needs constant sizes and axis to know its results",
        UndeterminedError,
    )
    axis, dim = axes[0], shape[axes[0]]  # type: ignore[index]
    if len(op.shape(1)) == 0:
        require(sections[0] > 0, "split needs a positive size")  # type: ignore[index]
        require(dim is not None, "split in equal parts needs a static dimension", UndeterminedError)
        size = sections[0]  # type: ignore[index]
        require(dim <= size * _MOST_PARTS, f"split in parts of {size} makes more than {_MOST_PARTS:,} of {dim:,}")  # type: ignore[operator]
        sections = tuple(min(size, dim - start) for start in range(0, dim, size))  # type: ignore[operator, arg-type]
    else:
        require(dim in (None, sum(sections)), f"sections {list(sections)} do not add up to {dim}")  # type: ignore[arg-type]
    return [tensor((*shape[:axis], size, *shape[axis + 1 :]), op.element(0)) for size in sections]  # type: ignore[union-attr]


@inference
def _tile(op: InferredOp) -> list[Attribute]:
    shape, repeats = op.shape(), op.partial(1)
    if repeats is None:
        raise UndeterminedError("the number of repetitions must be known")
    require(0 not in repeats, "the runtime cannot tile zero times", RuntimeRefusalError)
    rank = max(len(shape), len(repeats))
    padded = (1,) * (rank - len(shape)) + shape
    counts = (1,) * (rank - len(repeats)) + repeats
    dims = [None if dim is None or count is None else dim * count for dim, count in zip(padded, counts, strict=True)]
    return op.result(dims)


@inference
def _transpose(op: InferredOp) -> list[Attribute]:
    shape, permutation = op.shape(), op.integers(1)
    if permutation is None:
        return op.result((None,) * len(shape))
    require(
        sorted(permutation) == list(range(len(shape))), f"{list(permutation)} is no permutation of rank {len(shape)}"
    )
    return op.result([shape[axis] for axis in permutation])

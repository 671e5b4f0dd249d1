"""Result types of ops that reshape, slice, join, split and broadcast."""

from __future__ import annotations

import math

from patcomp.ir.constants import constant_integers
from patcomp.ir.infer.common import (
    Operands,
    Properties,
    RuntimeRefusalError,
    UndeterminedError,
    constant_axes,
    constant_sizes,
    inference,
    normalize_axis,
    operand_element,
    operand_length,
    operand_shape,
    partial_integers,
    require,
    shape_text,
)
from patcomp.ir.rows import Row
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute


@inference
def _broadcast_to(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape, target = operand_shape(operands[0]), partial_integers(operands[1])
    if target is None:
        raise UndeterminedError("the length of the target shape must be known")
    require(len(target) >= len(shape), f"cannot broadcast {shape_text(shape)} to the lower rank {shape_text(target)}")
    for dim, wanted in zip(reversed(shape), reversed(target), strict=False):
        fits = dim in (None, 1, wanted) or wanted is None
        require(fits, f"cannot broadcast {shape_text(shape)} to {shape_text(target)}")
    return [tensor(target, operand_element(operands[0]))]


@inference
def _broadcast_in_dims(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = list(operand_shape(operands[0]))
    axes = constant_axes(operands[2], len(shape))
    sizes = partial_integers(operands[1])
    if axes is None:
        return [tensor((None,) * len(shape), operand_element(operands[0]))]
    for index, axis in enumerate(axes):
        require(shape[axis] in (None, 1), f"dimension {axis} of {shape_text(tuple(shape))} is not 1")
        shape[axis] = sizes[index] if sizes is not None else None
    return [tensor(shape, operand_element(operands[0]))]


@inference
def _broadcast_shapes(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    lengths = [operand_length(operand) for operand in operands]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return [tensor((longest,), operand_element(operands[0]))]


@inference
def _concat(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    axis_values = constant_integers(operands[0])
    shapes = [operand_shape(operand) for operand in operands[1:]]
    require(len(shapes) > 0, "concat needs at least one tensor")
    rank = len(shapes[0])
    require(rank > 0, "concat needs tensors of rank 1 or more")
    require(all(len(shape) == rank for shape in shapes), "concat needs tensors of one rank")
    if axis_values is None:
        return [tensor((None,) * rank, operand_element(operands[1]))]
    axis = normalize_axis(axis_values[0], rank)
    first = shapes[0]
    for shape in shapes[1:]:
        # a `?` beside a number is refused too, by the native verifier: cast to one type first
        fits = first[:axis] == shape[:axis] and first[axis + 1 :] == shape[axis + 1 :]
        require(fits, f"shapes {shape_text(first)} and {shape_text(shape)} differ outside axis {axis}")
    dims = [shape[axis] for shape in shapes]
    total = None if None in dims else sum(dim for dim in dims if dim is not None)
    return [tensor((*first[:axis], total, *first[axis + 1 :]), operand_element(operands[1]))]


@inference
def _expand_dims(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    length = operand_length(operands[1])
    require(length is not None, "the number of new axes must be known", UndeterminedError)
    rank = len(shape) + (length or 0)
    axes = constant_axes(operands[1], rank)
    if axes is None:
        return [tensor((None,) * rank, operand_element(operands[0]))]
    remaining = iter(shape)
    return [tensor([1 if axis in axes else next(remaining) for axis in range(rank)], operand_element(operands[0]))]


@inference
def _shrink_dims(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    axes = constant_axes(operands[1], len(shape))
    if axes is None:
        length = operand_length(operands[1])
        require(length is not None, "the number of dropped axes must be known", UndeterminedError)
        return [tensor((None,) * (len(shape) - (length or 0)), operand_element(operands[0]))]
    for axis in axes:
        require(shape[axis] == 1, f"dimension {axis} of {shape_text(shape)} is not 1")
    return [tensor([dim for axis, dim in enumerate(shape) if axis not in axes], operand_element(operands[0]))]


@inference
def _get_shape(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor((len(operand_shape(operands[0])),), "ui32")]


@inference
def _pad(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape, padding = (
        operand_shape(operands[0]),
        constant_sizes(operands[1], 2 * len(operand_shape(operands[0])), "padding"),
    )
    if padding is None:
        return [tensor((None,) * len(shape), operand_element(operands[0]))]
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    mode = getattr(properties.get("padding_mode"), "data", "constant")
    limits = {"reflect": -1, "symmetric": 0, "circular": 0}
    for axis, (dim, pair) in enumerate(zip(shape, pairs, strict=True)):
        if mode in limits and dim is not None:
            require(max(pair) <= dim + limits[mode], f"{mode} padding {pair} is too large for dimension {axis} ({dim})")
    return [
        tensor(
            [None if dim is None else dim + sum(pair) for dim, pair in zip(shape, pairs, strict=True)],
            operand_element(operands[0]),
        )
    ]


@inference
def _reshape(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape, target = operand_shape(operands[0]), partial_integers(operands[1])
    if target is None:
        raise UndeterminedError("the rank of the new shape must be known")
    require(target.count(-1) <= 1, f"new shape {list(target)} has more than one -1")
    if None in target:
        return [tensor([None if dim == -1 else dim for dim in target], operand_element(operands[0]))]
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
        require(count == known, f"cannot reshape {shape_text(shape)} ({count} elements) to {list(target)} ({known})")
    return [tensor(result, operand_element(operands[0]))]


def sliced_shape(shape: Shape, bounds: Operands) -> Shape:
    """The shape of a slice whose start, end and stride vectors are `bounds`."""
    types = {str(operand_element(bound)) for bound in bounds}
    require(len(types) == 1, "slice bounds of mixed element types abort the runtime", RuntimeRefusalError)
    for bound in bounds:
        require(
            operand_length(bound) in (None, len(shape)),
            f"slice bounds need one value for each of {len(shape)} dimensions",
        )
    starts, ends, strides = (partial_integers(bound) for bound in bounds)
    if strides is not None:
        require(0 not in strides, "slice strides must not be zero")
    if starts is None or ends is None or strides is None:
        return (None,) * len(shape)
    result: list[int | None] = []
    for dim, start, end, stride in zip(shape, starts, ends, strides, strict=True):
        if dim is None or start is None or end is None or stride is None:
            result.append(None)
            continue
        result.append(len(range(*_bounds(dim, start, end, stride), stride)))
    return tuple(result)


def _bounds(dim: int, start: int, end: int, stride: int) -> tuple[int, int]:
    begin, stop, _ = slice(start, end, stride).indices(dim)
    return begin, stop


@inference
def _slice(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    result = sliced_shape(shape, operands[1:])
    strides = constant_integers(operands[3])
    if strides is not None and min(strides, default=1) < 0 and result == shape:
        message = "the runtime folds a slice that reverses a whole dimension to the identity; use reverse"
        raise RuntimeRefusalError(message)
    return [tensor(result, operand_element(operands[0]))]


@inference
def _split(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape = operand_shape(operands[0])
    sections, axes = constant_integers(operands[1]), constant_axes(operands[2], len(shape))
    require(
        sections is not None and axes is not None,
        "split needs constant sizes and axis to know its results",
        UndeterminedError,
    )
    axis, dim = axes[0], shape[axes[0]]  # type: ignore[index]
    if len(operand_shape(operands[1])) == 0:
        require(sections[0] > 0, "split needs a positive size")  # type: ignore[index]
        require(dim is not None, "split in equal parts needs a static dimension", UndeterminedError)
        size = sections[0]  # type: ignore[index]
        sections = tuple(min(size, dim - start) for start in range(0, dim, size))  # type: ignore[operator, arg-type]
    else:
        require(dim in (None, sum(sections)), f"sections {list(sections)} do not add up to {dim}")  # type: ignore[arg-type]
    return [tensor((*shape[:axis], size, *shape[axis + 1 :]), operand_element(operands[0])) for size in sections]  # type: ignore[union-attr]


@inference
def _tile(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape, repeats = operand_shape(operands[0]), partial_integers(operands[1])
    if repeats is None:
        raise UndeterminedError("the number of repetitions must be known")
    require(0 not in repeats, "the runtime cannot tile zero times", RuntimeRefusalError)
    rank = max(len(shape), len(repeats))
    padded = (1,) * (rank - len(shape)) + shape
    counts = (1,) * (rank - len(repeats)) + repeats
    dims = [None if dim is None or count is None else dim * count for dim, count in zip(padded, counts, strict=True)]
    return [tensor(dims, operand_element(operands[0]))]


@inference
def _transpose(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    shape, permutation = operand_shape(operands[0]), constant_integers(operands[1])
    if permutation is None:
        return [tensor((None,) * len(shape), operand_element(operands[0]))]
    require(
        sorted(permutation) == list(range(len(shape))), f"{list(permutation)} is no permutation of rank {len(shape)}"
    )
    return [tensor([shape[axis] for axis in permutation], operand_element(operands[0]))]

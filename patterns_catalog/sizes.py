"""Sizes in lowerings: numbers where they are known, 0-d values where they are only known at run time.

The authoring functions take lists of both: `c.reshape(x, [*sizes_of(c, x)[:2], 4, -1])`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value

Size = int | Value

END = 2**31 - 1
"""As a slice bound: to the end, whatever the size."""


def size_of(c: Coreai, x: Value, axis: int) -> Size:
    """The size of one axis of `x`; a 0-d si32 value where it is dynamic."""
    known = x.shape[axis]
    if known is not None:
        return known
    axis %= x.rank
    return c.reshape(c.slice_(c.cast(c.get_shape(x), "si32"), [axis], [axis + 1], [1]), [])


def sizes_of(c: Coreai, x: Value) -> list[Size]:
    """The size of each axis of `x`."""
    return [size_of(c, x, axis) for axis in range(x.rank)]


def wanted_sizes(shape: Shape, given: Sequence[Any]) -> list[Any]:
    """The sizes of a result of a known type: the numbers of the type, else what the op was given."""
    return [size if size is not None else other for size, other in zip(shape, given, strict=True)]


def view_sizes(shape: Shape, given: Sequence[Any]) -> list[Any]:
    """The sizes for a reshape to a result of a known type; a single dynamic one is -1, which needs no value."""
    if shape.count(None) == 1 and 0 not in shape:
        return [-1 if size is None else size for size in shape]
    return wanted_sizes(shape, given)


def broadcast_sizes(c: Coreai, values: Sequence[Value]) -> list[Size]:
    """The sizes that values have together when they broadcast."""
    shape = broadcast_shapes(*(value.shape for value in values))
    sizes: list[Size] = []
    for position, known in zip(range(-len(shape), 0), shape, strict=True):
        telling = (x for x in values if x.rank >= -position and x.shape[position] is None)
        sizes.append(known if known is not None else size_of(c, next(telling), position))
    return sizes


def typed(c: Coreai, x: Value, shape: Shape) -> Value:
    """`x`, whose type gets the dimensions of a shape that it is known to have."""
    return c.cast(x, x.element_type, result_type=tensor(shape, x.element_type))


def plus(c: Coreai, size: Size, number: int) -> Size:
    """A size and a number, which may be negative, added up."""
    if isinstance(size, int):
        return size + number
    if number == 0:
        return size
    return c.broadcasting_add(size, number) if number > 0 else c.broadcasting_sub(size, -number)


def positions(c: Coreai, size: Size) -> Value:
    """0, 1, 2 and so on up to a size, in si32."""
    return c.constant(np.arange(size, dtype=np.int32)) if isinstance(size, int) else c.range(0, size, 1)


def as_data(c: Coreai, size: Size) -> Value:
    """A size as an si32 vector of one element, to compute with it as with other data.

    The runtime handles 0-d numbers that are computed from sizes separately from tensors, and may lose them ("Expected
    operands to be tensors"); the element of a range is a tensor.
    """
    return c.constant([size], "si32") if isinstance(size, int) else c.range(size, plus(c, size, 1), 1)


def product(c: Coreai, sizes: Sequence[Size]) -> Size:
    """How many elements a shape has."""
    number, values = 1, []
    for size in sizes:
        if isinstance(size, Value):
            values.append(c.cast(size, "si32"))
        else:
            number *= size
    if not values:
        return number
    result = values[0]
    for value in values[1:]:
        result = c.broadcasting_mul(result, value)
    return result if number == 1 else c.broadcasting_mul(result, number)


def from_front(c: Coreai, position: Size, size: Size) -> Size:
    """A position that may count from the end, as one that counts from the front."""
    if isinstance(position, int) and position >= 0:
        return position
    if isinstance(position, Value):
        position = c.cast(position, "si32")
    if isinstance(position, int):
        return position + size if isinstance(size, int) else c.broadcasting_add(size, position)
    return c.where(c.broadcasting_greater(0, position), c.broadcasting_add(position, size), position)


def as_index(c: Coreai, value: Value) -> Value:
    """Indices in the element type that the runtime's gathers take."""
    return value if value.dtype == "si32" else c.cast(value, "si32")

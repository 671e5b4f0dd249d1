"""Writes at consecutive positions of one dimension, as an update of a slice instead of a scatter."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.traits import Reshape
from patcomp.ir.types import is_integer
from patcomp.ir.value import Value
from patterns_catalog.numbers import known_numbers
from patterns_catalog.sizes import Size, as_index, size_of
from patterns_catalog.slices import update_axis


def put_range(c: Coreai, x: Value, axis: int, index: Value, values: Value) -> Value | None:
    """`x` with the slices at consecutive indices of an axis replaced, as one update.

    A position outside of `x` is an error of the run, as it is in eager PyTorch and in the runtime's scatters. (The
    runtime's `slice_update` would silently write a part or nothing.)

    Args:
        c: the authoring functions.
        x: the tensor.
        axis: the dimension that is indexed.
        index: a 0-d or 1-d tensor of indices, which may count from the end.
        values: what to write, in the shape of the slices.

    Returns:
        The result; None where the indices are not known to be consecutive.
    """
    if index.rank > 1 or not _is_range(index):
        return None
    if index.rank == 0:
        values = c.expand_dims(values, [axis])
    numbers = known_numbers(index)
    bounds = (
        _checked_bounds(c, index, size_of(c, x, axis)) if numbers is None else _known_bounds(numbers, x.shape[axis])
    )
    return None if bounds is None else update_axis(c, x, axis, *bounds, values)


def _known_bounds(index: np.ndarray, size: int | None) -> tuple[Size, Size] | None:
    """The slice of constant indices; None where one is outside, some count from the end, or the size is not known."""
    first, last = index.flat[0], index.flat[-1]
    if size is None or first < -size or last >= size or first < 0 <= last:
        return None
    return int(first) % size, int(last) % size + 1


def _checked_bounds(c: Coreai, index: Value, size: Size) -> tuple[Size, Size]:
    """The slice of indices that the run computes. Reading the list of all positions at the first and the last one
    is an error where they are outside, and counts them from the front."""
    positions = c.range(0, size, 1)
    index = as_index(c, index)
    if index.shape in ((), (1,)):
        first = c.gather_nd(positions, c.reshape(index, [1, 1]))
        return first, c.broadcasting_add(first, 1)
    at_least_one = c.concat(0, [index, c.constant([0])])  # an index without elements has no first one
    first = c.gather_nd(positions, c.reshape(c.slice_(at_least_one, [0], [1], [1]), [1, 1]))
    end = c.broadcasting_add(first, size_of(c, index, 0))
    last = c.gather_nd(positions, c.reshape(c.broadcasting_sub(end, 1), [1, 1]))
    return first, c.broadcasting_minimum(end, c.broadcasting_add(last, 1))


def _is_range(index: Value) -> bool:
    """Whether integers, all but one of whose dimensions have size 1, are consecutive on every run."""
    if _is_single(index):
        return True
    if sum(size != 1 for size in index.shape) > 1 or not is_integer(index.element_type):
        return False
    if (numbers := known_numbers(index)) is not None:
        return numbers.size > 0 and bool(np.all(np.diff(numbers.reshape(-1)) == 1))
    op = index.maker
    if op is None:
        return False
    operands = [Value(operand) for operand in op.operands]
    if op.has_trait(Reshape):
        return _is_range(operands[0])
    match op.name.removeprefix("coreai.").removeprefix("decomposable."):
        case "range":
            return constant_integers(operands[2].ssa) == (1,)
        case "cast":
            return _is_range(operands[0])
        case "slice":
            strides = constant_integers(operands[3].ssa)
            return strides is not None and set(strides) == {1} and _is_range(operands[0])
        case "broadcasting_add":
            return any(_is_single(one) and _is_range(other) for one, other in (operands, operands[::-1]))
        case "broadcasting_sub":
            return _is_single(operands[1]) and _is_range(operands[0])
    return False


def _is_single(index: Value) -> bool:
    return all(size == 1 for size in index.shape)

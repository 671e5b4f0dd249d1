"""The bounds of slices in each dimension, composed with other slices and followed through reshapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.traits import Reshape
from patcomp.ir.types import Shape
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patterns_catalog.sizes import END, Size


class Moved(NamedTuple):
    """A position behind one that only the run knows."""

    position: Value
    distance: int


class Bounds(NamedTuple):
    """The positions `start:end:step` of one dimension. Equal bounds are the same positions on every run."""

    start: Size | Moved
    end: Size | Moved
    step: Size | Moved

    @property
    def known(self) -> bool:
        return all(isinstance(bound, int) for bound in self)


ALL = Bounds(0, END, 1)


def bounds_of(op: Operation) -> list[Bounds] | None:
    """The bounds of a `slice` or `slice_update` in each dimension; None if they cannot be analysed."""
    x, *vectors = map(Value, op.operands[:4])
    columns = [_entries(vector) for vector in vectors]
    if any(column is None or len(column) != x.rank for column in columns):
        return None
    starts, ends, strides = columns
    return [_resolved(Bounds(*entry), size) for *entry, size in zip(starts, ends, strides, x.shape, strict=True)]  # type: ignore[arg-type]


def _entries(vector: Value) -> list[Size] | None:
    """The elements of a vector of indices: numbers, and values of one element."""
    if (numbers := constant_integers(vector.ssa)) is not None:
        return list(numbers)
    if (joined := vector.made_by("coreai.concat")) is not None:
        parts = [_entries(Value(part)) for part in joined.operands[1:]]
        return None if None in parts else [entry for part in parts for entry in part or ()]
    if vector.shape != (1,):
        return None
    while (before := vector.made_by(Reshape)) is not None:
        vector = Value(before.operands[0])
    return [vector]


def _resolved(bounds: Bounds, size: int | None) -> Bounds:
    """Known bounds, counted from the front if the size is known; `ALL` if they select every element."""
    if not bounds.known or size is None or bounds.step < 0:  # type: ignore[operator]
        return bounds
    start, end, step = slice(*bounds).indices(size)  # type: ignore[misc]
    is_all = range(start, end, step) == range(size)  # also of one element, with any step
    return ALL if is_all else Bounds(start, max(start, end), step)


def combined(outer: Sequence[Bounds], inner: Sequence[Bounds], shape: Shape) -> list[Bounds] | None:
    """The bounds of `x[outer][inner]` in `x`; None if they are not known. `shape` is the shape of `x[outer]`."""
    found = []
    for of_x, of_part, size in zip(outer, inner, shape, strict=True):
        if (bounds := _combined(of_x, of_part, size)) is None:
            return None
        found.append(bounds)
    return found


def _combined(outer: Bounds, inner: Bounds, size: int | None) -> Bounds | None:
    if outer == ALL:
        return inner
    if inner == ALL:
        return outer
    if size is None or not inner.known or not isinstance(outer.step, int) or outer.step < 0:
        return None
    taken = range(size)[slice(*inner)]  # type: ignore[arg-type]
    if not taken or taken.step < 0 or _may_be_clamped(outer, size):
        return None
    start = _moved(outer.start, outer.step * taken[0])
    # the outer end is right also for bounds that count from the end of `x`, where the last position is -1
    end = outer.end if taken[-1] == size - 1 else _moved(outer.start, outer.step * taken[-1] + 1)
    return Bounds(start, end, outer.step * taken.step)


def _may_be_clamped(outer: Bounds, size: int) -> bool:
    """Whether a slice of an open dimension has `size` elements also where its start lies before the first position:
    `x[-4::2]` has 2 elements of 3 rows, from row 0, and of 4 rows."""
    if not isinstance(outer.start, int) or outer.start >= 0:
        return False
    if not outer.known:
        return True
    return any(len(range(length)[slice(*outer)]) == size for length in range(-outer.start))  # type: ignore[arg-type]


def _moved(position: Size | Moved, distance: int) -> Size | Moved:
    if isinstance(position, int):
        return position + distance
    if isinstance(position, Moved):
        return Moved(position.position, position.distance + distance)
    return Moved(position, distance) if distance else position


def bounds_of_part(cut: Operation, part: Value) -> list[Bounds] | None:
    """The bounds of a result of a slice or split in each dimension of the operand; None if they are not known."""
    if cut.name == "coreai.slice":
        return bounds_of(cut)
    x, axes = Value(cut.operands[0]), constant_integers(cut.operands[2])
    sections = [Value(result) for result in cut.results]
    sizes = [section.shape[axes[0]] if axes else None for section in sections]
    if axes is None or None in sizes:
        return None
    number, ends = sections.index(part), list(accumulate(size or 0 for size in sizes))
    axis, bounds = axes[0] % x.rank, [ALL] * x.rank
    bounds[axis] = _resolved(Bounds(ends[number] - (sizes[number] or 0), ends[number], 1), x.shape[axis])
    return bounds


def taken_from(part: Value, x: Value) -> list[Bounds] | None:
    """The bounds in `x` of a part that a chain of slices and splits takes of `x`; None for other values."""
    if part == x:
        return [ALL] * x.rank
    cut = part.made_by("coreai.slice", "coreai.split")
    if cut is None or (inner := bounds_of_part(cut, part)) is None:
        return None
    before = Value(cut.operands[0])
    outer = taken_from(before, x)
    return None if outer is None else combined(outer, inner, before.shape)


def columns(c: Coreai, bounds: Sequence[Bounds]) -> tuple[list[Size], list[Size], list[Size]]:
    """Bounds as the operands of a slice."""
    rows = [[_known(c, position) for position in bound] for bound in bounds]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _known(c: Coreai, position: Size | Moved) -> Size:
    """A position as an operand."""
    return c.broadcasting_add(*position) if isinstance(position, Moved) else position


# ---- reshapes ------------------------------------------------------------------------------------


def _groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The groups of dimensions that a reshape maps to each other, without those of size 1; None if they are unknown."""
    from_, to = ([axis for axis, size in enumerate(shape) if size != 1] for shape in (before, after))
    groups: list[tuple[list[int], list[int]]] = []
    while from_ and to:
        left, right = [from_.pop(0)], [to.pop(0)]
        while (a := _size(before, left)) != (b := _size(after, right)):
            if a is None or b is None or not (from_ if a < b else to):
                return None
            if a < b:
                left.append(from_.pop(0))
            else:
                right.append(to.pop(0))
        groups.append((left, right))
    return None if from_ or to else groups


def _size(shape: Shape, axes: list[int]) -> int | None:
    sizes = [shape[axis] for axis in axes]
    return None if None in sizes else math.prod(sizes)  # type: ignore[arg-type]


def reshaped(
    bounds: Sequence[Bounds], part: Shape, before: Shape, after: Shape
) -> tuple[list[Bounds], list[int | None]] | None:
    """The bounds that select the same elements after the sliced tensor is reshaped.

    Args:
        bounds: the bounds of the slice before the reshape.
        part: the shape of the slice.
        before: the shape of the tensor.
        after: its shape after the reshape.

    Returns:
        The bounds and the shape of the slice after the reshape; None if no bounds select these elements.
    """
    groups = _groups(before, after)
    units = [(bounds[axis], part[axis]) for axis, size in enumerate(before) if size == 1]
    if groups is None or any(unit != (ALL, 1) for unit in units):
        return None
    found, shape = [ALL] * len(after), list(after)
    for left, right in groups:
        first, *rest = [bounds[axis] for axis in left]
        if len(left) == len(right) == 1:
            found[right[0]], shape[right[0]] = first, part[left[0]]
        elif first != ALL or any(bound != ALL for bound in rest):
            # whole rows of the other dimensions
            times, per = _size(before, left[1:]), _size(after, right[1:])
            if (
                times is None
                or per is None
                or min(len(left), len(right)) > 1
                or not first.known
                or first.step != 1
                or rest != [ALL] * len(rest)
            ):
                return None
            start, end = (bound * times for bound in first[:2] if isinstance(bound, int))
            if start % per or end % per:
                return None
            found[right[0]], shape[right[0]] = Bounds(start // per, end // per, 1), (end - start) // per
    return found, shape

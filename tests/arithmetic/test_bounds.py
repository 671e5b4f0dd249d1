"""The bounds of slices (`optimize/bounds.py`), against Python's own ranges: all slices of slices, and of reshapes.

A bound is right if it selects the same positions. A function may refuse (None); how often it does is written down, so
that a function that refuses more is found, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from patterns_catalog.bounds import ALL, Bounds, _combined, _groups, _resolved, combined, reshaped
from patterns_catalog.sizes import END


@cache
def slices(size: int, steps: tuple[int, ...] = (1, 2, 3, -1, -2)) -> tuple[Bounds, ...]:
    """Every start and end from before the first to after the last position of a dimension, and END, with every step."""
    starts, ends = range(-size - 2, size + 2), (*range(-size - 2, size + 3), END)
    return tuple(Bounds(*each) for each in itertools.product(starts, ends, steps))


def selected(size: int, bounds: Bounds) -> range:
    """The positions that bounds select."""
    return range(size)[slice(*bounds)]  # type: ignore[misc]


@pytest.mark.parametrize("size", range(6))
def test_resolved_bounds_select_the_same(size: int) -> None:
    for bounds in slices(size):
        found = _resolved(bounds, size)
        assert list(selected(size, found)) == list(selected(size, bounds)), bounds
        assert (found == ALL) == (list(selected(size, bounds)) == list(range(size)) and bounds.step > 0), bounds
        assert _resolved(bounds, None) == bounds


def compositions(sizes: tuple[int, ...], is_open: bool) -> Iterator[tuple[int, Bounds, Bounds, Bounds | None]]:
    """Each slice of each slice: the size of the dimension, both bounds, and their combination.

    Of an open dimension only the length of the part is known.
    """
    for size in sizes:
        for outer in slices(size):
            part = selected(size, outer)
            if not part:
                continue
            first = _resolved(outer, None if is_open else size)
            for inner in slices(len(part)):
                if selected(len(part), inner):
                    yield size, outer, inner, _combined(first, _resolved(inner, len(part)), len(part))


SMALL, LARGE = (1, 2, 3), (4, 5)


def check_compositions(sizes: tuple[int, ...], *, is_open: bool) -> tuple[int, int]:
    """Check all compositions, and return how many there are, and how many are refused."""
    count, refused = 0, 0
    for size, outer, inner, found in compositions(sizes, is_open):
        count, refused = count + 1, refused + (found is None)
        if found is None:
            continue
        length = len(selected(size, outer))
        for other in range(9) if is_open else (size,):
            part = selected(other, outer)
            if len(part) == length:  # the sizes at which the program is valid
                assert list(selected(other, found)) == list(part[slice(*inner)]), (other, outer, inner)
    return count, refused


@pytest.mark.parametrize(("is_open", "refused"), [(False, 10816), (True, 16048)])
def test_each_slice_of_each_slice(is_open: bool, refused: int) -> None:
    assert check_compositions(SMALL, is_open=is_open) == (36800, refused)


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [False, True])
def test_each_slice_of_each_slice_of_more_elements(is_open: bool) -> None:
    check_compositions(LARGE, is_open=is_open)


def test_bounds_of_several_dimensions_are_combined_one_by_one() -> None:
    outer, inner = [Bounds(1, 4, 1), ALL, Bounds(0, 9, 2)], [Bounds(1, 3, 1), Bounds(0, 2, 1), Bounds(1, 3, 1)]
    assert combined(outer, inner, (3, 5, 5)) == [Bounds(2, 4, 1), Bounds(0, 2, 1), Bounds(2, 5, 2)]
    assert combined(outer, [ALL, ALL, Bounds(4, 0, -1)], (3, 5, 5)) is None


# ---- reshapes ------------------------------------------------------------------------------------


def shapes(count: int, rank: int = 3) -> list[tuple[int, ...]]:
    """All shapes of some elements."""
    return [
        shape
        for length in range(1, rank + 1)
        for shape in itertools.product(range(1, count + 1), repeat=length)
        if math.prod(shape) == count
    ]


@pytest.mark.parametrize("count", [4, 6])
def test_groups_of_dimensions(count: int) -> None:
    for before, after in itertools.product(shapes(count), repeat=2):
        groups = _groups(before, after)
        assert groups is not None
        lefts, rights = ([axis for group in groups for axis in group[side]] for side in (0, 1))
        assert lefts == [axis for axis, size in enumerate(before) if size != 1]
        assert rights == [axis for axis, size in enumerate(after) if size != 1]
        for left, right in groups:
            assert math.prod(before[axis] for axis in left) == math.prod(after[axis] for axis in right)
            inner = set(itertools.accumulate((before[axis] for axis in left[:-1]), lambda a, b: a * b))
            assert inner.isdisjoint(itertools.accumulate((after[axis] for axis in right[:-1]), lambda a, b: a * b))


def check_reshapes(count: int) -> tuple[int, int]:
    """Check every slice of every reshape of some elements; return how many there are, and how many are refused."""
    total, refused, data = 0, 0, np.arange(count)
    for before, after in itertools.product(shapes(count), repeat=2):
        one_slice = [slices(size, (1, 2)) for size in before]
        for axis, size in enumerate(before):
            for cut in {_resolved(bounds, size) for bounds in one_slice[axis] if selected(size, bounds)}:
                bounds = [cut if place == axis else ALL for place in range(len(before))]
                wanted = data.reshape(before)[tuple(slice(*each) for each in bounds)]
                found = reshaped(bounds, wanted.shape, before, after)
                total, refused = total + 1, refused + (found is None)
                if found is not None:
                    made = data.reshape(after)[tuple(slice(*each) for each in found[0])]
                    assert made.shape == tuple(found[1]), (before, after, bounds)
                    assert made.reshape(-1).tolist() == wanted.reshape(-1).tolist(), (before, after, bounds)
    return total, refused


@pytest.mark.parametrize(("count", "refused"), [(4, 600), (6, 2912)])
def test_each_slice_after_each_reshape(count: int, refused: int) -> None:
    assert check_reshapes(count)[1] == refused

"""Slices along one axis of a tensor: how rules build them, and read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patterns_catalog.bounds import ALL, bounds_of_part
from patterns_catalog.sizes import END, Size


def slice_axis(
    c: Coreai, x: Value, axis: int, start: Size, end: Size, step: Size = 1, *, result_type: Any = None
) -> Value:
    """`x[..., start:end:step, ...]` along one axis."""
    return c.slice_(x, *_bounds(x.rank, axis, start, end, step), result_type=result_type)


def update_axis(c: Coreai, x: Value, axis: int, start: Size, end: Size, values: Value, step: Size = 1) -> Value:
    """`x` with `x[..., start:end:step, ...]` along one axis replaced; `x` itself if the slice is known to be empty."""
    if isinstance(start, int) and start == end:
        return x
    return c.slice_update(x, *_bounds(x.rank, axis, start, end, step), values)


def side_by_side(c: Coreai, axis: int, parts: Sequence[Value]) -> Value:
    """The parts joined along an axis; a single part stays as it is."""
    return parts[0] if len(parts) == 1 else c.concat(axis, parts)


def _bounds(rank: int, axis: int, start: Size, end: Size, step: Size) -> tuple[list[Size], list[Size], list[Size]]:
    """The starts, ends and steps of a slice that keeps all axes but one."""
    starts: list[Size] = [0] * rank
    ends: list[Size] = [END] * rank
    steps: list[Size] = [1] * rank
    starts[axis], ends[axis], steps[axis] = start, end, step
    return starts, ends, steps


@dataclass(frozen=True)
class Part:
    """Every `step`-th element of one axis, from `start` to `end`; all three are known."""

    axis: int
    start: int
    end: int
    step: int = 1

    def of(self, c: Coreai, x: Value, axis: int | None = None) -> Value:
        """This part of a tensor, along the part's own axis or another one; the tensor itself if the part is the whole
        tensor."""
        at = self.axis if axis is None else axis
        whole = (self.start, self.end, self.step) == (0, x.shape[at], 1)
        return x if whole else slice_axis(c, x, at, self.start, self.end, self.step)

    def moved(self, axis: int, start: int = 0) -> Part:
        """A part of as many elements of another axis, one after the other."""
        return Part(axis, start, start + self.end - self.start)


def part_of(value: Value) -> tuple[Value, Part] | None:
    """The tensor from which a slice or split cuts a value along one axis, and the part; None for other values."""
    cut = value.made_by("coreai.slice", "coreai.split")
    bounds = None if cut is None else bounds_of_part(cut, value)
    if cut is None or bounds is None:
        return None
    axes = [axis for axis, bound in enumerate(bounds) if bound != ALL]
    if len(axes) != 1 or Value(cut.operands[0]).shape[axes[0]] is None or not bounds[axes[0]].known:
        return None
    start, end, step = bounds[axes[0]]
    assert isinstance(start, int)
    assert isinstance(end, int)
    assert isinstance(step, int)
    return (Value(cut.operands[0]), Part(axes[0], start, end, step)) if start < end and step > 0 else None


def parts_of(whole: Value, axis: int) -> list[tuple[Value, Part]]:
    """The values that are cut from a tensor along one axis without gaps, in the order of their elements."""
    results = [Value(result) for user in whole.users for result in user.results]
    found = [(value, part[1]) for value in results if (part := part_of(value)) is not None and part[0] == whole]
    alike = [(value, part) for value, part in found if (part.axis, part.step) == (axis, 1)]
    return sorted(alike, key=lambda each: (each[1].start, each[1].end))

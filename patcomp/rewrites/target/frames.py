"""Frames: in which order a tensor's axes are stored, and how each op carries the order of its operands to its results.

A frame lists the logical axes of a tensor in stored order. A tensor of shape (B, S, D) that is stored as (B, D, 1, S)
has the frame (0, 2, None, 1); None is a further dimension of size 1. A logical axis of size 1 may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from patcomp.ir.constants import constant_integers, constant_values
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.traits import Elementwise, Reduction
from patcomp.ir.types import TensorType, is_static, static_shape
from patcomp.ir.xdsl import Operation, SSAValue

Frame = tuple[int | None, ...]
_Shape = tuple[int, ...]


def stored_in_order(rank: int) -> Frame:
    """The frame of a tensor that is stored as it is."""
    return tuple(range(rank))


def stored_shape(shape: Sequence[int], frame: Frame) -> _Shape:
    """The shape in which a tensor is stored."""
    return tuple(1 if axis is None else shape[axis] for axis in frame)


def order(shape: Sequence[int], frame: Frame) -> list[int]:
    """The axes of more than one element in stored order; frames with equal orders differ in views only."""
    return [axis for axis in frame if axis is not None and shape[axis] != 1]


def is_moved(shape: Sequence[int], frame: Frame) -> bool:
    """Whether the elements of a tensor are stored in another order than its own."""
    found = order(shape, frame)
    return found != sorted(found)


@dataclass(frozen=True)
class Carried:
    """How an op computes on stored tensors."""

    operands: tuple[Frame | np.ndarray | None, ...]
    """For each operand its frame, or the new elements of a constant; None keeps an operand as it is."""
    result: Frame
    """The frame of every result."""


Carrier = Callable[[CoreaiOp, Sequence[Frame | None]], Carried | None]
"""How an op of some name is carried, given the frames of its operands (None for constants and operands of unknown
size); None if it needs its operands in order."""

_CARRIERS: dict[str, Carrier] = {}


def carried(op: Operation, frames: Sequence[Frame | None]) -> Carried | None:
    """How an op computes on tensors that are stored in other orders; None if it cannot."""
    if not isinstance(op, CoreaiOp) or op.regions or not all(map(has_known_sizes, (*op.operands, *op.results))):
        return None
    if op.has_trait(Elementwise):
        return _elementwise(op, frames)
    if op.has_trait(Reduction):
        return _reduction(op, frames)
    carrier = _CARRIERS.get(op.name)
    return carrier(op, frames) if carrier is not None else None


def has_known_sizes(value: SSAValue) -> bool:
    """Whether a value is a tensor without dynamic or empty dimensions."""
    return isinstance(value.type, TensorType) and is_static(value.type) and 0 not in static_shape(value.type)


def _row(*names: str) -> Callable[[Carrier], Carrier]:
    def declare(carrier: Carrier) -> Carrier:
        _CARRIERS.update({f"coreai.{name}": carrier for name in names})
        return carrier

    return declare


def _shape(value: SSAValue) -> _Shape:
    return static_shape(value.type)


def _elementwise(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    """All operands take the frame of the largest one that is stored in another order."""
    shape = _shape(op.results[0])
    leaders = [
        (math.prod(_shape(operand)), frame)
        for operand, frame in zip(op.operands, frames, strict=True)
        if frame is not None and is_moved(_shape(operand), frame) and len(_shape(operand)) == len(shape)
    ]
    if not leaders:
        return None
    _, leader = max(leaders, key=lambda item: item[0])
    if any(size != 1 and axis not in leader for axis, size in enumerate(shape)):
        return None
    return Carried(tuple(_broadcast_frame(leader, len(_shape(each)), len(shape)) for each in op.operands), leader)


def _broadcast_frame(frame: Frame, rank: int, of_rank: int) -> Frame:
    """The frame of an operand of a lower rank beside one of a higher rank with the given frame."""
    missing = of_rank - rank
    found = [None if axis is None or axis < missing else axis - missing for axis in frame]
    while missing and found and found[0] is None:
        del found[0]
    return tuple(found)


def _axes(values: SSAValue, rank: int) -> list[int] | None:
    given = constant_integers(values)
    return None if given is None else [axis % rank for axis in given]


def _like(values: SSAValue, numbers: Sequence[int]) -> np.ndarray:
    """New elements for a constant of integers, in its type."""
    old = constant_values(values)
    assert old is not None
    return np.array(numbers, dtype=old.dtype).reshape((len(numbers),) if old.ndim else ())


def _reduction(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    """A reduction keeps its axes, with size 1."""
    frame, axes = frames[0], _axes(op.operands[1], len(_shape(op.operands[0])))
    if frame is None or axes is None or not all(axis in frame for axis in axes):
        return None
    return Carried((frame, _like(op.operands[1], sorted(frame.index(axis) for axis in axes))), frame)


@_row("softmax")
def _softmax(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    frame, axes = frames[0], _axes(op.operands[1], len(_shape(op.operands[0])))
    if frame is None or axes is None or axes[0] not in frame:
        return None
    return Carried((frame, _like(op.operands[1], [frame.index(axes[0])])), frame)


@_row("concat")
def _concat(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    shape, axes = _shape(op.results[0]), _axes(op.operands[0], len(_shape(op.results[0])))
    moved = [
        frame
        for operand, frame in zip(op.operands[1:], frames[1:], strict=True)
        if frame is not None and is_moved(_shape(operand), frame)
    ]
    if axes is None or not moved or axes[0] not in moved[0]:
        return None
    if any(size != 1 and axis not in moved[0] for axis, size in enumerate(shape)):
        return None
    return Carried((_like(op.operands[0], [moved[0].index(axes[0])]), *([moved[0]] * len(op.operands[1:]))), moved[0])


@_row("slice")
def _slice(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    """Start, end and stride of each axis; dimensions that the frame adds are kept whole."""
    frame, bounds = frames[0], [constant_integers(operand) for operand in op.operands[1:]]
    shape = _shape(op.operands[0])
    if frame is None or any(axis not in frame for axis, size in enumerate(shape) if size != 1) or None in bounds:
        return None
    made: list[Frame | np.ndarray | None] = [frame]
    for operand, numbers, whole in zip(op.operands[1:], bounds, (0, 1, 1), strict=True):
        assert numbers is not None
        made.append(_like(operand, [whole if axis is None else numbers[axis] for axis in frame]))
    return Carried(tuple(made), frame)


@_row("pad")
def _pad(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    """The amounts before and after each axis; dimensions that the frame adds get none."""
    frame, amounts = frames[0], constant_integers(op.operands[1])
    shape = _shape(op.results[0])
    if frame is None or amounts is None or any(axis not in frame for axis, size in enumerate(shape) if size != 1):
        return None
    moved = [n for axis in frame for n in ((0, 0) if axis is None else amounts[2 * axis : 2 * axis + 2])]
    return Carried((frame, _like(op.operands[1], moved), None), frame)


@_row("split")
def _split(op: CoreaiOp, frames: Sequence[Frame | None]) -> Carried | None:
    frame, axes = frames[0], _axes(op.operands[2], len(_shape(op.operands[0])))
    if frame is None or axes is None or axes[0] not in frame:
        return None
    return Carried((frame, None, _like(op.operands[2], [frame.index(axes[0])])), frame)


# ---- views ------------------------------------------------------------------------------------------


def transposed(op: Operation, frame: Frame) -> Frame | None:
    """The frame in which the operand of a transpose, stored in `frame`, is already its result."""
    permutation = constant_integers(op.operands[1])
    if permutation is None:
        return None
    place = {old: new for new, old in enumerate(permutation)}
    return tuple(None if axis is None else place[axis] for axis in frame)


def renamed_units(before: Sequence[int], after: Sequence[int], frame: Frame) -> Frame | None:
    """The frame of a reshape that only adds or drops dimensions of size 1; None for another reshape."""
    old = [axis for axis, size in enumerate(before) if size != 1]
    new = [axis for axis, size in enumerate(after) if size != 1]
    if [before[axis] for axis in old] != [after[axis] for axis in new]:
        return None
    names: dict[int | None, int] = dict(zip(old, new, strict=True))
    return tuple(names.get(axis) for axis in frame)


def regrouped(before: Sequence[int], after: Sequence[int], frame: Frame) -> Frame | None:
    """The frame of a reshape's result without a transpose: the axes of each group that the reshape splits or joins must
    be stored side by side, in order. None if one is not."""
    groups = _groups(before, after)
    if groups is None:
        return None
    made: list[int | None] = []
    stored = order(before, frame)
    while stored:
        old, new = next(group for group in groups if stored[0] in group[0])
        if stored[: len(old)] != list(old):
            return None
        made += new
        del stored[: len(old)]
    return tuple(made)


def channels_first(before: Sequence[int], after: Sequence[int]) -> Frame | None:
    """The frame (B, C, S) of a reshape to (B, S, C), which the reshape of an operand in another order can have: a
    transpose is then needed before it, as for a result in order. None if the reshape cannot have it."""
    rank = len(after)
    frame = (0, rank - 1, *range(1, rank - 1))
    return frame if rank > 2 and is_moved(after, frame) and _source(before, after, frame) is not None else None


def source_frame(before: Sequence[int], after: Sequence[int], frame: Frame, result: Frame) -> Frame:
    """The order of the operand from which a reshape gives the wanted order of its result; the operand's own order if
    that works."""
    if result in (renamed_units(before, after, frame), regrouped(before, after, frame)):
        return frame
    source = _source(before, after, result)
    assert source is not None
    return source


def _source(before: Sequence[int], after: Sequence[int], result: Frame) -> Frame | None:
    groups = _groups(before, after)
    if groups is None:
        return None
    made: list[int] = []
    stored = order(after, result)
    while stored:
        old, new = next(group for group in groups if stored[0] in group[1])
        if stored[: len(new)] != list(new):
            return None
        made += old
        del stored[: len(new)]
    return tuple(made)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """The smallest runs of axes that a reshape maps to each other, without axes of size 1."""
    left = [axis for axis, size in enumerate(before) if size != 1]
    right = [axis for axis, size in enumerate(after) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        old, new = [left.pop(0)], [right.pop(0)]
        while (a := _product(before, old)) != (b := _product(after, new)):
            source, taken = (left, old) if a < b else (right, new)
            if not source:
                return None
            taken.append(source.pop(0))
        groups.append((old, new))
    return groups if not left and not right else None


def _product(shape: Sequence[int], axes: Iterable[int]) -> int:
    return math.prod(shape[axis] for axis in axes)

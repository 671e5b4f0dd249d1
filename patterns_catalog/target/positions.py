"""Masks that a program computes from positions, followed from op to op until they are bounds of row - column.

A tensor of integers is affine in its indices: `range(0, n)` along an axis is that axis' index. A comparison of two such
tensors is a mask that is true where row - column lies between two bounds. Every other op is unknown. Axes are counted
from the end, as broadcasting does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from patcomp.ir.constants import constant_integers
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation

Lengths = Mapping[int, Hashable]
"""What determines the length of an axis; equal ones are equal lengths."""


@dataclass(frozen=True)
class Affine:
    """offset + the sum of factors times indices; bools and other constants have no factors."""

    factors: Mapping[int, int]
    offset: int
    lengths: Lengths


@dataclass(frozen=True)
class Band:
    """True where least <= row - column <= most; the row is the index of the axis before the last."""

    least: float
    most: float
    lengths: Lengths

    def __and__(self, other: Band) -> Band:
        lengths = {**other.lengths, **self.lengths}
        return Band(max(self.least, other.least), min(self.most, other.most), lengths)

    def __or__(self, other: Band) -> Band | None:
        first, second = sorted((self, other), key=lambda band: band.least)
        if first.most + 1 < second.least:
            return None
        return Band(first.least, max(first.most, second.most), {**other.lengths, **self.lengths})

    def inverted(self) -> Band | None:
        if self.most == math.inf:
            return Band(-math.inf, self.least - 1, self.lengths)
        return Band(self.most + 1, math.inf, self.lengths) if self.least == -math.inf else None


Positions = Affine | Band | None
"""What is known of a tensor."""

_EVERYWHERE = Band(-math.inf, math.inf, {})

_COMPARISONS = {  # the bounds of the difference of two integers
    "greater": (1, math.inf), "greater_equal": (0, math.inf), "equal": (0, 0), "less": (-math.inf, -1),
    "less_equal": (-math.inf, 0),
}  # fmt: skip


def band_of(mask: Value) -> Band | None:
    """The bounds of row - column where a mask of bools is true; None if the program does not prove them."""
    found = positions_of(mask)
    if isinstance(found, Affine):
        return _as_band(found)
    return found


def positions_of(value: Value) -> Positions:
    """What is known of a tensor of integers or bools."""
    if value.dtype not in ("i1", "si32"):  # narrow and unsigned integers wrap around
        return None
    constant = value.constant
    if constant is not None:
        equal = constant.size > 0 and bool((constant == constant.flat[0]).all())
        return Affine({}, int(constant.flat[0]), {}) if equal else None
    op = value.ssa.owner
    if not isinstance(op, Operation):
        return None
    name = op.name.removeprefix("coreai.").removeprefix("decomposable.").removeprefix("broadcasting_")
    operands = [Value(each) for each in op.operands]
    found = _moved(name, op, operands, value) if name in _MOVES else _computed(name, op, operands)
    if name == "cast" and value.dtype == "i1" and isinstance(found, Affine):
        return None if found.factors else replace(found, offset=int(found.offset != 0))
    if isinstance(found, Affine):
        factors = {axis: n for axis, n in found.factors.items() if n and value.shape[axis] != 1}
        return replace(found, factors=factors)
    return found


# ---- arithmetic --------------------------------------------------------------------------------------


def _computed(name: str, op: Operation, operands: list[Value]) -> Positions:
    if name == "range":
        start, step = (constant_integers(operands[index].ssa) for index in (0, 2))
        return None if start is None or step is None else Affine({-1: step[0]}, start[0], {-1: op.operands})
    known = [positions_of(operand) for operand in operands[:2]]
    if name == "cast":
        return known[0]
    first = known[0] if known else None
    if name == "not" and first is not None:
        band = _as_band(first)
        return band and band.inverted()
    if name == "scan":  # sums, products and extremes of zeros are zeros
        return known[0] if isinstance(known[0], Affine) and not known[0].factors and not known[0].offset else None
    left, right = known if len(known) == 2 else (None, None)
    if left is None or right is None:
        return None
    if name in ("and", "or"):
        bands = _as_band(left), _as_band(right)
        if bands[0] is None or bands[1] is None:
            return None
        return bands[0] & bands[1] if name == "and" else bands[0] | bands[1]
    if isinstance(left, Band) or isinstance(right, Band):
        return None
    if name == "add":
        return _sum(left, right, 1)
    difference = _sum(left, right, -1)
    if name == "sub":
        return difference
    if name == "not_equal":
        return None if difference.factors else replace(difference, offset=int(difference.offset != 0))
    return _compared(difference, *_COMPARISONS[name]) if name in _COMPARISONS else None


def _sum(left: Affine, right: Affine, sign: int) -> Affine:
    factors = {
        axis: left.factors.get(axis, 0) + sign * right.factors.get(axis, 0) for axis in {*left.factors, *right.factors}
    }
    factors = {axis: factor for axis, factor in factors.items() if factor}
    return Affine(factors, left.offset + sign * right.offset, {**right.lengths, **left.lengths})


def _compared(difference: Affine, least: float, most: float) -> Positions:
    """Where a difference lies between two bounds."""
    factors, offset = difference.factors, difference.offset
    if not factors:
        return Affine({}, int(least <= offset <= most), difference.lengths)
    if factors == {-2: 1, -1: -1}:
        return Band(least - offset, most - offset, difference.lengths)
    if factors == {-2: -1, -1: 1}:
        return Band(offset - most, offset - least, difference.lengths)
    return None


def _as_band(known: Affine | Band) -> Band | None:
    if isinstance(known, Band):
        return known
    return _EVERYWHERE if not known.factors and known.offset == 1 else None


# ---- ops that move elements ----------------------------------------------------------------------------

_MOVES = frozenset({"expand_dims", "broadcast_to", "slice", "concat", "gather_nd"})


def _moved(name: str, op: Operation, operands: list[Value], result: Value) -> Positions:
    if name == "concat":
        return _joined(operands[0], operands[1:])
    if name == "gather_nd":
        return _gathered(*operands)
    known = positions_of(operands[0])
    if known is None or name == "broadcast_to":
        return known
    if not isinstance(known, Affine):  # whose axes must stay the last two
        kept = name == "expand_dims" and constant_integers(operands[1].ssa)
        return known if kept and max(axis % result.rank for axis in kept) < result.rank - 2 else None
    if name == "expand_dims":
        added = constant_integers(operands[1].ssa)
        if added is None:
            return None
        new = {axis % result.rank for axis in added}
        left = [axis - result.rank for axis in range(result.rank) if axis not in new]
        names = {before - len(left): after for before, after in enumerate(left)}
        return _renamed(known, names)
    starts, steps = (constant_integers(operands[index].ssa) for index in (1, 3))
    if starts is None or steps is None or min(starts) < 0 or set(steps) != {1}:
        return None
    offset = known.offset + sum(factor * starts[axis] for axis, factor in known.factors.items())
    return Affine(known.factors, offset, {})


def _renamed(known: Affine, names: Mapping[int, int]) -> Affine:
    factors = {names[axis]: factor for axis, factor in known.factors.items()}
    return Affine(factors, known.offset, {names[axis]: at for axis, at in known.lengths.items() if axis in names})


def _joined(axis: Value, parts: list[Value]) -> Positions:
    """Numbers before consecutive numbers, if they go on; the lengths of all parts but the last are known."""
    at, found = constant_integers(axis.ssa), [positions_of(part) for part in parts]
    last, before = found[-1], 0
    if at is None or not isinstance(last, Affine):
        return None
    place = at[0] % parts[0].rank - parts[0].rank
    step = last.factors.get(place, 0)
    sizes = [part.shape[place] for part in parts[:-1]]
    if None in sizes:
        return None
    whole = replace(last, offset=last.offset - step * sum(size or 0 for size in sizes), lengths={})
    for known, size in zip(found[:-1], sizes, strict=True):
        assert size is not None
        factors = {each: n for each, n in whole.factors.items() if each != place or size != 1}
        if not isinstance(known, Affine) or known.factors != factors or known.offset != whole.offset + step * before:
            return None
        before += size
    return whole


def _gathered(table: Value, indices: Value) -> Positions:
    """A table whose numbers are affine, at places that are."""
    known = positions_of(table)
    maker = indices.ssa.owner
    if not isinstance(known, Affine) or not isinstance(maker, Operation):
        return None
    count = indices.shape[-1]
    if count != table.rank:  # only single numbers are looked up
        return None
    parts = [indices] if count == 1 else [Value(each) for each in maker.operands[1:]]
    if count != 1 and (maker.name != "coreai.concat" or any(part.shape[-1] != 1 for part in parts)):
        return None
    total = Affine({}, known.offset, {})
    for axis, part in enumerate(parts, start=-table.rank):
        place = positions_of(part)
        if not isinstance(place, Affine) or place.offset < 0 or any(n < 0 for n in place.factors.values()):
            return None
        if -1 in place.factors:
            return None
        moved = _renamed(place, {old: old + 1 for old in range(-indices.rank, -1)})
        factor = known.factors.get(axis, 0)
        scaled = {each: factor * n for each, n in moved.factors.items() if factor * n}
        total = _sum(total, Affine(scaled, factor * moved.offset, moved.lengths), 1)
    return total

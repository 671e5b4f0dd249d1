"""Masks that a program computes from positions, followed from op to op until they are bounds of row - column.

A tensor of integers is affine in its indices: `range(0, n)` along an axis is that axis' index. A comparison of two such
tensors is a mask that is true where row - column lies between two bounds. The rows may be shifted by sizes, such as the
number of tokens in a cache. Every other op is unknown. Axes are counted from the end, as broadcasting does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from patcomp.ir.constants import constant_integers
from patcomp.ir.extents import Extent, Unknown, extent
from patcomp.ir.traits import Reshape
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
    sizes: Extent = 0
    """Dynamic sizes that are added, without a number of their own."""


@dataclass(frozen=True)
class Band:
    """True where least <= row + shift - column <= most; the row is the index of the axis before the last."""

    least: float
    most: float
    lengths: Lengths
    shift: Extent | None = None
    """A sum of dynamic sizes; None if the bounds are infinite, so that every shift is right."""

    def __and__(self, other: Band) -> Band | None:
        least, most = max(self.least, other.least), min(self.most, other.most)
        return self._joined(other, least, most)

    def __or__(self, other: Band) -> Band | None:
        first, second = sorted((self, other), key=lambda band: band.least)
        if first.most + 1 < second.least:
            return None
        return self._joined(other, first.least, max(first.most, second.most))

    def _joined(self, other: Band, least: float, most: float) -> Band | None:
        if None not in (self.shift, other.shift) and self.shift != other.shift:
            return None
        shift = self.shift if self.shift is not None else other.shift
        return Band(least, most, {**other.lengths, **self.lengths}, shift)

    def inverted(self) -> Band | None:
        if self.most == math.inf:
            return replace(self, least=-math.inf, most=self.least - 1)
        return replace(self, least=self.most + 1, most=math.inf) if self.least == -math.inf else None


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
    if (size := _size(value)) is not None:
        return size
    op = value.ssa.owner
    if not isinstance(op, Operation):
        return None
    name = op.name.removeprefix("coreai.").removeprefix("decomposable.").removeprefix("broadcasting_")
    operands = [Value(each) for each in op.operands]
    found = _moved(name, op, operands, value) if name in _MOVES else _computed(name, op, operands)
    if name == "cast" and value.dtype == "i1" and isinstance(found, Affine):
        return None if found.factors or found.sizes else replace(found, offset=int(found.offset != 0))
    if isinstance(found, Affine):
        factors = {axis: n for axis, n in found.factors.items() if n and value.shape[axis] != 1}
        return replace(found, factors=factors)
    return found


# ---- sizes -------------------------------------------------------------------------------------------


def _size(value: Value) -> Affine | None:
    """A number that is computed from sizes of tensors, as an affine tensor without factors."""
    size = _extent(value)
    if size is None:
        return None
    number = dict(size.terms).get(frozenset(), 0) if isinstance(size, Unknown) else size
    return Affine({}, number, {}, size + -number)


def _extent(value: Value) -> Extent | None:
    if value.dtype not in ("si32", "ui32") or any(size != 1 for size in value.shape):
        return None
    if (constant := constant_integers(value.ssa)) is not None:
        return constant[0]
    op = value.ssa.owner
    if not isinstance(op, Operation):
        return None
    name, operands = op.name.rpartition("_")[2] if "broadcasting" in op.name else op.name, op.operands
    if name == "coreai.cast" or op.has_trait(Reshape):
        return _extent(Value(operands[0]))
    if name == "coreai.slice":
        start = constant_integers(operands[1])
        shape = operands[0].owner
        while isinstance(shape, Operation) and shape.name == "coreai.cast":
            shape = shape.operands[0].owner
        if start is None or not isinstance(shape, Operation) or shape.name != "coreai.get_shape":
            return None
        return extent(Value(shape.operands[0]), start[0])
    if name in ("add", "sub", "mul"):
        left, right = (_extent(Value(operand)) for operand in operands)
        if left is None or right is None:
            return None
        return left * right if name == "mul" else left + (right if name == "add" else -1 * right)
    return None


def _length(op: Operation, start: int, step: int) -> Hashable:
    """What determines the length of a `range`: a size, or its operands."""
    end = _extent(Value(op.operands[1])) if (start, step) == (0, 1) else None
    return op.operands if end is None else end


# ---- arithmetic --------------------------------------------------------------------------------------


def _computed(name: str, op: Operation, operands: list[Value]) -> Positions:
    if name == "range":
        start, step = (constant_integers(operands[index].ssa) for index in (0, 2))
        if start is None or step is None:
            return None
        return Affine({-1: step[0]}, start[0], {-1: _length(op, start[0], step[0])})
    known = [positions_of(operand) for operand in operands[:2]]
    if name == "cast":
        return known[0]
    first = known[0] if known else None
    if name == "not" and first is not None:
        band = _as_band(first)
        return band and band.inverted()
    if name == "scan":  # sums, products and extremes of zeros are zeros
        return first if isinstance(first, Affine) and first == Affine({}, 0, first.lengths) else None
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
        unknown = difference.factors or difference.sizes
        return None if unknown else replace(difference, offset=int(difference.offset != 0))
    return _compared(difference, *_COMPARISONS[name]) if name in _COMPARISONS else None


def _sum(left: Affine, right: Affine, sign: int) -> Affine:
    factors = {
        axis: left.factors.get(axis, 0) + sign * right.factors.get(axis, 0) for axis in {*left.factors, *right.factors}
    }
    factors = {axis: factor for axis, factor in factors.items() if factor}
    lengths = {**right.lengths, **left.lengths}
    return Affine(factors, left.offset + sign * right.offset, lengths, left.sizes + sign * right.sizes)


def _compared(difference: Affine, least: float, most: float) -> Positions:
    """Where a difference lies between two bounds."""
    factors, offset, sizes = difference.factors, difference.offset, difference.sizes
    if not factors:
        return None if sizes else Affine({}, int(least <= offset <= most), difference.lengths)
    if factors == {-2: 1, -1: -1}:
        return Band(least - offset, most - offset, difference.lengths, sizes)
    if factors == {-2: -1, -1: 1}:
        return Band(offset - most, offset - least, difference.lengths, -1 * sizes)
    return None


def _as_band(known: Affine | Band) -> Band | None:
    if isinstance(known, Band):
        return known
    return _EVERYWHERE if not known.factors and (known.offset, known.sizes) == (1, 0) else None


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
    return replace(known, offset=offset, lengths={})


def _renamed(known: Affine, names: Mapping[int, int]) -> Affine:
    factors = {names[axis]: factor for axis, factor in known.factors.items()}
    lengths = {names[axis]: at for axis, at in known.lengths.items() if axis in names}
    return replace(known, factors=factors, lengths=lengths)


def _joined(axis: Value, parts: list[Value]) -> Positions:
    """Numbers before consecutive numbers, if they go on; the lengths of all parts but the last are known."""
    at, found = constant_integers(axis.ssa), [positions_of(part) for part in parts]
    last, before = found[-1], 0
    if at is None or not isinstance(last, Affine) or last.sizes:
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
        if not isinstance(known, Affine) or known.factors != factors or known.sizes:
            return None
        if known.offset != whole.offset + step * before:
            return None
        before += size
    return whole


def _gathered(table: Value, indices: Value) -> Positions:
    """A table whose numbers are affine, at places that are."""
    known = positions_of(table)
    maker = indices.ssa.owner
    if not isinstance(known, Affine) or known.sizes or not isinstance(maker, Operation):
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
        if place.sizes or -1 in place.factors:
            return None
        moved = _renamed(place, {old: old + 1 for old in range(-indices.rank, -1)})
        factor = known.factors.get(axis, 0)
        scaled = {each: factor * n for each, n in moved.factors.items() if factor * n}
        total = _sum(total, Affine(scaled, factor * moved.offset, moved.lengths), 1)
    return total

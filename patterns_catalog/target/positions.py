"""Masks that a program computes from positions, followed from op to op until they are bounds of row - column.

A tensor of integers is a polynomial of its indices and of sizes: `range(0, n)` along an axis is that axis' index. A
comparison of two such tensors is a mask that is true where row - column lies between two bounds. The rows may be
shifted by sizes, such as the number of tokens in a cache. Every op without a function here is unknown. Axes are counted
from the end, as broadcasting does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from patcomp.ir.constants import constant_integers
from patcomp.ir.extents import Extent, Unknown, extent, substituted, unknown
from patcomp.ir.traits import Reshape
from patcomp.ir.value import Value

Lengths = Mapping[int, Hashable]
"""A key of the length of an axis; equal keys are equal lengths."""


class Index(NamedTuple):
    """The index along an axis, as an unknown."""

    axis: int


def _index(axis: int) -> Unknown:
    return unknown(Index(axis))


_DISTANCE = _index(-2) + -1 * _index(-1)
"""row - column"""


@dataclass(frozen=True)
class Numbers:
    """A tensor of integers or bools as a polynomial of its indices and of sizes."""

    value: Extent
    lengths: Lengths

    @property
    def axes(self) -> list[int]:
        """The axes along which the numbers may differ."""
        names = self.value.names if isinstance(self.value, Unknown) else ()
        return [name.axis for name in names if isinstance(name, Index)]

    @property
    def is_natural(self) -> bool:
        """Whether no number is negative, as indices and sizes are not."""
        terms = self.value.terms if isinstance(self.value, Unknown) else [((), self.value)]
        return all(factor >= 0 for _, factor in terms)

    def at(self, indices: Mapping[int, Extent], lengths: Lengths | None = None) -> Numbers:
        """The numbers at other indices along some axes."""
        value = substituted(self.value, {Index(axis): place for axis, place in indices.items()})
        return Numbers(value, self.lengths if lengths is None else lengths)

    def renamed(self, names: Mapping[int, int]) -> Numbers:
        """The same numbers along other axes."""
        lengths = {names[axis]: length for axis, length in self.lengths.items() if axis in names}
        return self.at({before: _index(after) for before, after in names.items()}, lengths)


@dataclass(frozen=True)
class Band:
    """True where least <= row + shift - column <= most; the row is the index of the axis before the last."""

    least: float
    most: float
    lengths: Lengths
    shift: Extent | None = None
    """A sum of dynamic sizes; None if the bounds are infinite, so that every shift is right."""

    def __and__(self, other: Band) -> Band | None:
        return self._joined(other, max(self.least, other.least), min(self.most, other.most))

    def __or__(self, other: Band) -> Band | None:
        first, second = sorted((self, other), key=lambda band: band.least)
        touch = first.most + 1 >= second.least
        return self._joined(other, first.least, max(first.most, second.most)) if touch else None

    def _joined(self, other: Band, least: float, most: float) -> Band | None:
        if None not in (self.shift, other.shift) and self.shift != other.shift:
            return None
        shift = self.shift if self.shift is not None else other.shift
        return Band(least, most, {**other.lengths, **self.lengths}, shift)

    def inverted(self) -> Band | None:
        if self.most == math.inf:
            return replace(self, least=-math.inf, most=self.least - 1)
        return replace(self, least=self.most + 1, most=math.inf) if self.least == -math.inf else None


Known = Numbers | Band | None
"""The known facts about a tensor."""


def band_of(mask: Value) -> Band | None:
    """The bounds of row - column where a mask of bools is true; None if the program does not prove them."""
    found = known_of(mask)
    if isinstance(found, Numbers):
        return Band(-math.inf, math.inf, {}) if found.value == 1 else None
    return found


def known_of(x: Value) -> Known:
    """The known facts about a tensor of integers or bools."""
    is_size = x.dtype == "ui32" and all(size == 1 for size in x.shape)
    if x.dtype not in ("i1", "si32") and not is_size:  # narrow and unsigned integers wrap around
        return None
    if (constant := x.constant) is not None:
        equal = constant.size > 0 and bool((constant == constant.flat[0]).all())
        return Numbers(int(constant.flat[0]), {}) if equal else None
    if (maker := x.maker) is None:
        return None
    name = maker.name.removeprefix("coreai.").removeprefix("decomposable.").removeprefix("broadcasting_")
    found = _moved(maker.has_trait(Reshape) and name != "expand_dims", name, x, list(map(Value, maker.operands)))
    return found.at({axis: 0 for axis in found.axes if x.shape[axis] == 1}) if isinstance(found, Numbers) else found


def _moved(is_view: bool, name: str, x: Value, operands: list[Value]) -> Known:
    """The known facts about `x`, which an op of some name computes by moving elements."""
    first = operands[0] if operands else x
    match name:
        case "broadcast_to":
            return known_of(first)
        case "expand_dims":
            return _expanded(x, known_of(first), constant_integers(operands[1].ssa))
        case "slice":
            return _sliced(x, first, *(constant_integers(operand.ssa) for operand in (operands[1], operands[3])))
        case "concat":
            return _joined(x, constant_integers(first.ssa), operands[1:])
        case "gather_nd":
            return _gathered(*operands)
    if is_view:  # of one number
        known = known_of(first)
        return Numbers(known.value, {}) if isinstance(known, Numbers) and not known.axes else None
    return _computed(name, x, operands)


def _computed(name: str, x: Value, operands: list[Value]) -> Known:
    """The known facts about `x`, which an op of some name computes."""
    if name == "range":
        return _counted(*operands)
    if name in ("and", "or"):
        one, other = map(band_of, operands)
        return None if one is None or other is None else one & other if name == "and" else one | other
    if name == "not":
        band = band_of(operands[0])
        return None if band is None else band.inverted()
    known = [known_of(operand) for operand in operands[:2]]
    if name == "cast" and (x.dtype != "i1" or not isinstance(known[0], Numbers)):
        return known[0]
    if not known or any(not isinstance(each, Numbers) for each in known[: 1 if name in ("cast", "scan") else 2]):
        return None
    left, right = (each if isinstance(each, Numbers) else Numbers(0, {}) for each in (known[0], known[-1]))
    lengths = {**right.lengths, **left.lengths}
    match name:
        case "cast":
            return Numbers(int(left.value != 0), lengths) if isinstance(left.value, int) else None
        case "scan":  # sums, products and extremes of zeros are zeros
            return left if left.value == 0 else None
        case "add":
            return Numbers(left.value + right.value, lengths)
        case "sub":
            return Numbers(left.value + -1 * right.value, lengths)
        case "mul":
            return None if left.axes or right.axes else Numbers(left.value * right.value, lengths)
        case "equal" | "greater":
            return _between(left.value + -1 * right.value, (0, 0) if name == "equal" else (1, math.inf), lengths)
        case "not_equal":
            equal = _between(left.value + -1 * right.value, (0, 0), lengths)
            return Numbers(1 + -1 * equal.value, lengths) if isinstance(equal, Numbers) else None
    return None


def _between(difference: Extent, bounds: tuple[float, float], lengths: Lengths) -> Known:
    """Where a difference lies between two bounds."""
    least, most = bounds
    if isinstance(difference, int):
        return Numbers(int(least <= difference <= most), lengths)
    for sign, low, high in ((1, least, most), (-1, -most, -least)):
        rest = Numbers(sign * difference + -1 * _DISTANCE, {})
        if not rest.axes:
            offset = rest.value if isinstance(rest.value, int) else rest.value.constant
            return Band(low - offset, high - offset, lengths, rest.value + -offset)
    return None


def _counted(start: Value, stop: Value, step: Value) -> Known:
    first, by = constant_integers(start.ssa), constant_integers(step.ssa)
    if first is None or by is None:
        return None
    end, length = known_of(stop) if (*first, *by) == (0, 1) else None, (start, stop, step)
    return Numbers(first[0] + by[0] * _index(-1), {-1: end.value if isinstance(end, Numbers) else length})


def _expanded(x: Value, known: Known, axes: tuple[int, ...] | None) -> Known:
    if known is None or axes is None:
        return None
    added = {axis % x.rank for axis in axes}
    if isinstance(known, Band):  # whose axes must stay the last two
        return known if max(added, default=0) < x.rank - 2 else None
    left = [axis - x.rank for axis in range(x.rank) if axis not in added]
    return known.renamed({before - len(left): after for before, after in enumerate(left)})


def _sliced(x: Value, whole: Value, starts: tuple[int, ...] | None, steps: tuple[int, ...] | None) -> Known:
    if starts is None or steps is None or min(starts) < 0 or set(steps) != {1}:
        return None
    source = whole
    while (cast := source.made_by("coreai.cast")) is not None:
        source = Value(cast.operands[0])
    if (shape := source.made_by("coreai.get_shape")) is not None:
        return Numbers(extent(Value(shape.operands[0]), starts[0]), {}) if x.shape == (1,) else None
    known = known_of(whole)
    places = {axis: start + _index(axis) for axis, start in enumerate(starts, -x.rank)}
    return known.at(places, {}) if isinstance(known, Numbers) else None


def _joined(x: Value, axis: tuple[int, ...] | None, parts: list[Value]) -> Known:
    """Numbers before consecutive numbers, if they go on; the lengths of all parts but the last are known."""
    found = [known_of(part) for part in parts]
    last, place = found[-1], axis[0] % x.rank - x.rank if axis else 0
    sizes = [part.shape[place] for part in parts[:-1]] if axis else [None]
    if None in sizes or not isinstance(last, Numbers):
        return None
    whole, before = last.at({place: _index(place) + -sum(size or 0 for size in sizes)}, {}), 0
    for known, size in zip(found[:-1], sizes, strict=True):
        wanted = whole.at({place: before if size == 1 else _index(place) + before})
        if not isinstance(known, Numbers) or known.value != wanted.value:
            return None
        before += size or 0
    return whole


def _gathered(table: Value, indices: Value) -> Known:
    """A table whose numbers are known, at places that are."""
    known, count, maker = known_of(table), indices.shape[-1], indices.maker
    if not isinstance(known, Numbers) or maker is None or count != table.rank:
        return None  # only single numbers are looked up
    parts = [indices] if count == 1 else [Value(each) for each in maker.operands[1:]]
    if count != 1 and (maker.name != "coreai.concat" or any(part.shape[-1] != 1 for part in parts)):
        return None
    total: dict[int, Extent] = {}
    lengths: dict[int, Hashable] = {}
    for axis, part in enumerate(parts, -table.rank):
        place = known_of(part)
        if not isinstance(place, Numbers) or -1 in place.axes or not place.is_natural:
            return None
        moved = place.renamed({old: old + 1 for old in range(-indices.rank, -1)})
        total[axis], lengths = moved.value, {**moved.lengths, **lengths}
    return known.at(total, lengths)

"""Ranges: the smallest and the largest possible value of each integer or float of a program.

A transfer function computes the ranges of an op's results from those of its arguments. The op's row in
`ir/aten_facts.txt` names the function, `range=`; an op without one has results of unknown range.
`transfer_functions.py` has the functions.

Ranges of floats hold for finite values only: a cast of infinities and NaN to integers is undefined in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from patcomp.ir.types import BIT_WIDTHS, element_name, integer_range
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, TensorType

LONGEST = 1 << 23
"""The assumed maximum of a dynamic dimension."""
MOST_ELEMENTS = 1 << 30
"""The assumed maximum of a product of several dynamic dimensions."""

PythonNumber = int | float


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`, both included."""

    low: PythonNumber
    high: PythonNumber
    rounded: bool = False
    """Whether some are float64 numbers that float32 can only hold rounded."""
    saturated: bool = False
    """Whether these integers were cast from floats: after narrowing, those that do not fit saturate."""
    size: bool = False
    """Whether the number is a dynamic dimension, or a product of dynamic dimensions."""

    @property
    def point(self) -> PythonNumber | None:
        """The only number of the range; None if there are several."""
        return self.low if self.low == self.high else None

    def within(self, other: Range) -> bool:
        """Whether the other range has all numbers of this one."""
        return other.low <= self.low and self.high <= other.high

    def clipped(self, other: Range) -> Range:
        """The intersection with the other range; the other range if it is empty."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return replace(self, low=low, high=high) if low <= high else other

    def __or__(self, other: Range) -> Range:
        """The smallest range with all numbers of both."""
        return hull((self, other))

    def __add__(self, other: Range) -> Range:
        return span((self.low + other.low, self.high + other.high), (self, other))

    def __neg__(self) -> Range:
        return replace(self, low=-self.high, high=-self.low)

    def __sub__(self, other: Range) -> Range:
        return self + -other

    def __mul__(self, other: Range) -> Range:
        products = (_times(x, y) for x in (self.low, self.high) for y in (other.low, other.high))
        return span(products, (self, other))

    def __abs__(self) -> Range:
        return replace(self, low=max(0, self.low, -self.high), high=self.magnitude)

    @property
    def magnitude(self) -> PythonNumber:
        """The largest absolute value."""
        return max(self.high, -self.low)

    def whole(self) -> Range:
        """The numbers of the range, cut toward zero."""
        return replace(self, low=_integer(self.low), high=_integer(self.high))

    def sums(self, count: int) -> Range:
        """Sums of 1 to `count` numbers of the range."""
        return replace(self, low=min(self.low, _times(self.low, count)), high=max(self.high, _times(self.high, count)))


ANY_NUMBER = Range(-math.inf, math.inf)
BOOL = Range(0, 1)
FALSE, TRUE = Range(0, 0), Range(1, 1)
EXACT_FLOATS = Range(-(2**24), 2**24)
"""The integers that float32 holds exactly."""
_LARGEST = {"f16": 65504.0, "bf16": 3.4e38, "f32": 3.4028235e38, "f64": math.inf}


def number(value: bool | int | float) -> Range:
    """The range of one number."""
    if isinstance(value, float) and not math.isfinite(value):
        return ANY_NUMBER
    exact = abs(value) <= _LARGEST["f32"] and float(np.float32(value)) == value
    value = int(value) if isinstance(value, bool) else value
    return Range(value, value, not exact)


def hull(ranges: Iterable[Range]) -> Range:
    """The smallest range with all numbers of some ranges."""
    listed = list(ranges)
    if not listed:
        return FALSE
    return Range(
        min(each.low for each in listed),
        max(each.high for each in listed),
        any(each.rounded for each in listed),
        any(each.saturated for each in listed),
        any(each.size for each in listed),
    )


def range_of_type(type_: Attribute) -> Range:
    """All finite numbers of a tensor type's elements."""
    name = element_name(type_.element_type) if isinstance(type_, TensorType) else ""
    if name == "i1":
        return BOOL
    if name[:2] in ("si", "ui"):
        return Range(*integer_range(name))
    largest = _LARGEST.get(name, math.inf)
    return Range(-largest, largest, rounded=name == "f64")


@dataclass(frozen=True)
class RangedOp:
    """An op as a transfer function sees it: its arguments by name, and their ranges."""

    given: Mapping[str, Any]
    results: Sequence[Value]
    ranges: Callable[[Value], Range]

    def __getitem__(self, name: str) -> Range:
        """The range of an argument."""
        return self.range(self.given[name])

    def range(self, argument: Any) -> Range:
        """The range of a value, a number, or a list of these."""
        if isinstance(argument, Value):
            return self.ranges(argument)
        if isinstance(argument, list | tuple):
            return hull(map(self.range, argument))
        return number(argument) if isinstance(argument, bool | int | float) else ANY_NUMBER

    @property
    def of_floats(self) -> bool:
        """Whether the elements of the first result are floats."""
        return self.results[0].dtype[0] in "fb"

    def length(self, dims: Any, name: str = "self") -> int:
        """The largest number of elements along the dimensions of an argument; all dimensions by None or an empty list.

        At least 1.
        """
        shape = self.given[name].shape
        axes = range(len(shape)) if dims is None or dims == [] else dims if isinstance(dims, list) else [dims]
        sizes = [shape[axis % len(shape)] for axis in axes] if shape else []
        known = math.prod(size for size in sizes if size is not None)
        dynamic = sizes.count(None)
        return max(1, known * (1 if not dynamic else LONGEST if dynamic == 1 else MOST_ELEMENTS))


Transfer = Callable[[RangedOp], Range | Sequence[Range]]


def span(candidates: Iterable[PythonNumber], like: Iterable[Range] = ()) -> Range:
    """The range of some numbers, unknown if one is NaN. It is `rounded` if one of the ranges `like` is."""
    listed = list(candidates)
    rounded = any(each.rounded for each in like)
    if any(each != each for each in listed):
        return replace(ANY_NUMBER, rounded=rounded)
    return Range(min(listed), max(listed), rounded)


def _times(a: PythonNumber, b: PythonNumber) -> PythonNumber:
    return 0 if a == 0 or b == 0 else a * b  # an infinite bound stands for no bound


def _integer(bound: PythonNumber) -> PythonNumber:
    return int(bound) if math.isfinite(bound) else bound


def converted(x: Range, source: str, target: str) -> Range:
    """The numbers of a range after a cast between element types."""
    if target == "i1":
        return FALSE if x.point == 0 else TRUE if x.low > 0 or x.high < 0 else BOOL
    if target[:2] in ("si", "ui"):
        if source[0] in "fb":  # float32 may have rounded up the numbers from which the range was computed
            slack = [abs(bound) * 2**-18 for bound in (x.low, x.high)]
            whole = Range(_integer(x.low - slack[0]), _integer(x.high + slack[1]))
            return replace(whole, saturated=BIT_WIDTHS[target] == 64)
        return x
    rounded = x.rounded if source == "f64" else source[:2] in ("si", "ui") and not x.within(EXACT_FLOATS)
    return Range(x.low, x.high, rounded and target == "f64")

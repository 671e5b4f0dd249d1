"""Changes of an example: other values of one part of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from patcomp.patterns.example_types import ExampleType
from patcomp_lab.proof.drawing import LARGEST_DRAWN_SIZE, sizes_in

RANK = 4
"""The largest rank whose permutations are all listed."""

CHANGED_SIZES = (1, 2, 3, 4)
"""The sizes that take the place of each size of an example."""

_LENGTH = 5
"""The largest length whose slices are all listed."""

_FLOATS = (0.0, -1.0, 0.5, 2.0, 1.0, -0.0, 1e-5, 3.0, -2.5, 1e-12, 100.0, -0.5)
"""The numbers in the place of a float that a pattern leaves free."""

_INTEGERS = (0, 1, 2, 3, -1, -2, 4, 5, -3, 7, -4, -5, 100)
"""The numbers in the place of an integer that a pattern leaves free. None is so large that, as a size, it would fill
the memory; the end of an open slice is one already."""

_ORDERS = 24
"""The most orders of a list, or of the rows of a constant."""


@dataclass(frozen=True)
class ExampleParts:
    """What is known of the parts of an example, besides their values."""

    words: Mapping[str, Sequence[Any]]
    """The values that a part takes elsewhere: those of the same argument in other examples, and declared words."""
    is_elementwise: bool = False
    """Whether all ops are elementwise, so that no integer is an index."""


ExampleValues = Mapping[str, Any]


# ---- one part ------------------------------------------------------------------------------------------


def changed_part(name: str, example: ExampleValues, parts: ExampleParts) -> list[Any]:
    """Other values of one part of an example, those that matter most first."""
    value = example[name]
    made: Iterator[Any]
    type_ = ExampleType.parsed(value)
    if name in parts.words:
        made = (word for word in parts.words[name] if word != value)
    elif type_ is not None:
        made = map(str, _types(type_, parts.is_elementwise))
    elif isinstance(value, bool):
        made = iter([not value])
    elif type(value) is int:
        made = _integers(value, example)
    elif isinstance(value, float):
        made = (number for number in _FLOATS if repr(number) != repr(value))
    elif is_list_of_integers(value):
        made = _lists(list(value), example)
    elif isinstance(value, list) and value and all(isinstance(item, bool) for item in value):
        made = iter(
            [[not item for item in value], *([*value[:i], not value[i], *value[i + 1 :]] for i in range(len(value)))]
        )
    elif isinstance(value, np.ndarray):
        made = _arrays(value)
    elif value is None:
        made = iter([1, 0, 2, -1, 0.5])
    else:
        made = iter(())
    return list(made)


def _types(type_: ExampleType, is_elementwise: bool) -> Iterator[ExampleType]:
    sizes = type_.sizes
    if is_elementwise and type_.limits is not None and type_.is_integer:
        high = type_.limits[1].lstrip("-")
        for limits in ((f"-{high}", high), (f"-{high}", "-1"), ("0", high), ("1", high)):
            if limits != type_.limits:
                yield replace(type_, limits=limits)
    if is_elementwise and type_.limits is not None:
        yield replace(type_, limits=None)
    seen = {sizes}
    for change in (
        lambda _: 1,
        lambda n: 2 * n,
        lambda n: n + 1,
        lambda _: 2,
        lambda _: 3,
        lambda n: n - 1,
        lambda _: 4,
    ):
        for axis, size in enumerate(sizes):
            other = (*sizes[:axis], change(size), *sizes[axis + 1 :])
            if other[axis] > 0 and other not in seen:
                seen.add(other)
                yield replace(type_, sizes=other)
    for left in range(len(sizes)):
        yield replace(type_, sizes=sizes[left + 1 :])
    yield from (replace(type_, sizes=(size, *sizes)) for size in (2, 1))
    if len(sizes) > 1 and len(set(sizes)) > 1:
        yield replace(type_, sizes=sizes[::-1])
    if type_.is_float:
        yield from (replace(type_, element=e) for e in ("f32", "f16", "bf16", "si32") if e != type_.element)
    elif type_.is_integer and type_.limits is None:
        yield from (
            replace(type_, element=e) for e in ("si32", "si8", "f32", "si64", "ui8", "i1") if e != type_.element
        )


def _integers(value: int, example: ExampleValues) -> Iterator[int]:
    sizes = sorted(set(sizes_in(example, set())))
    near = [value + 1, value - 1, -value, *sizes, *(-size for size in sizes)]
    if abs(value) <= LARGEST_DRAWN_SIZE:
        near.append(2 * value)
    return (number for number in dict.fromkeys((*_INTEGERS[:8], *near, *_INTEGERS[8:])) if number != value)


def is_list_of_integers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(item) is int for item in value)


def _lists(value: list[int], example: ExampleValues) -> Iterator[list[int]]:
    """The list in other orders, with other numbers in each place, moved, and of other lengths."""
    seen = {tuple(value)}

    def new(items: list[int]) -> bool:
        key = tuple(items)
        return not (key in seen or seen.add(key))  # type: ignore[func-returns-value]

    orders = itertools.islice(itertools.permutations(value), _ORDERS)
    yield from (list(order) for order in orders if new(list(order)))
    sizes = sorted({size for size in sizes_in(example, set()) if size > _LENGTH})
    near = dict.fromkeys((1, 2, 0, -1, 3, *range(4, _LENGTH + 1), *range(-2, -_LENGTH - 1, -1), *sizes))
    for number in near:
        for place in range(len(value)):
            if new(changed := [*value[:place], number, *value[place + 1 :]]):
                yield changed
    for step in (1, -1, 2):
        if new(changed := [item + step for item in value]):
            yield changed
    for shape in ([*value, 1], [1, *value], value[:-1], value[1:]):
        if new(shape):
            yield shape


def _arrays(value: np.ndarray) -> Iterator[np.ndarray]:
    """A constant of a recorded program: rows in other orders, other integers in each place, other ranks."""
    if value.ndim and len(value) > 1:
        yield value[::-1].copy()
        yield np.roll(value, 1, axis=0)
    if value.dtype.kind in "iu" and value.size <= 4 * _ORDERS:
        for number in (0, 1, 2, -1, 3):
            for place in range(value.size):
                if value.dtype.kind == "u" and number < 0:
                    continue
                changed = value.copy()
                changed.reshape(-1)[place] = number
                if not np.array_equal(changed, value):
                    yield changed
        for order in itertools.islice(itertools.permutations(range(len(value))), 1, _ORDERS) if value.ndim else ():
            yield value[list(order)].copy()
    elif value.dtype.kind == "f":
        yield -value
        yield np.zeros_like(value)
        if value.ndim == 0:
            yield from (np.asarray(number, value.dtype) for number in _FLOATS)
    elif value.dtype.kind == "b":
        yield ~value
    yield value[None].copy()
    if value.ndim > 1 and len(value) == 1:
        yield value[0].copy()
    if value.ndim > 1:
        yield np.swapaxes(value, -1, -2).copy()

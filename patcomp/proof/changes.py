"""Changes of an example: other values of one part of it, or of several parts together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from patcomp.patterns.example_types import ExampleType
from patcomp.proof.drawing import LARGEST_SIZE, of_element, sizes_in, with_sizes

RANK = 4
"""The largest rank whose permutations are all listed."""

SIZES = (1, 2, 3, 4)
"""The sizes that take the place of each size of an example."""

LENGTH = 5
"""The largest length whose slices are all listed."""

FLOATS = (0.0, -1.0, 0.5, 2.0, 1.0, -0.0, 1e-5, 3.0, -2.5, 1e-12, 100.0, -0.5)
"""The numbers in the place of a float that a pattern leaves free."""

INTEGERS = (0, 1, 2, 3, -1, -2, 4, 5, -3, 7, -4, -5, 100)
"""The numbers in the place of an integer that a pattern leaves free. None is so large that, as a size, it would fill
the memory; the end of an open slice is one already."""

_FEW = 8
"""How many orders of axes are listed where there are several permutations."""

_ORDERS = 24
"""The most orders of a list, or of the rows of a constant."""


@dataclass(frozen=True)
class Parts:
    """What is known of the parts of an example, besides their values."""

    words: Mapping[str, Sequence[Any]]
    """The values that a part takes elsewhere: those of the same argument in other examples, and declared words."""
    is_elementwise: bool = False
    """Whether all ops are elementwise, so that no integer is an index."""


Example = Mapping[str, Any]


# ---- one part ------------------------------------------------------------------------------------------


def changed_part(name: str, example: Example, parts: Parts) -> list[Any]:
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
        made = (number for number in FLOATS if repr(number) != repr(value))
    elif _is_list_of_integers(value):
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


def _integers(value: int, example: Example) -> Iterator[int]:
    sizes = sorted(set(sizes_in(example, set())))
    near = [value + 1, value - 1, -value, *sizes, *(-size for size in sizes)]
    if abs(value) <= LARGEST_SIZE:
        near.append(2 * value)
    return (number for number in dict.fromkeys((*INTEGERS[:8], *near, *INTEGERS[8:])) if number != value)


def _is_list_of_integers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(item) is int for item in value)


def _lists(value: list[int], example: Example) -> Iterator[list[int]]:
    """The list in other orders, with other numbers in each place, moved, and of other lengths."""
    seen = {tuple(value)}

    def new(items: list[int]) -> bool:
        key = tuple(items)
        return not (key in seen or seen.add(key))  # type: ignore[func-returns-value]

    orders = itertools.islice(itertools.permutations(value), _ORDERS)
    yield from (list(order) for order in orders if new(list(order)))
    sizes = sorted({size for size in sizes_in(example, set()) if size > LENGTH})
    near = dict.fromkeys((1, 2, 0, -1, 3, *range(4, LENGTH + 1), *range(-2, -LENGTH - 1, -1), *sizes))
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
            yield from (np.asarray(number, value.dtype) for number in FLOATS)
    elif value.dtype.kind == "b":
        yield ~value
    yield value[None].copy()
    if value.ndim > 1 and len(value) == 1:
        yield value[0].copy()
    if value.ndim > 1:
        yield np.swapaxes(value, -1, -2).copy()


# ---- several parts together -----------------------------------------------------------------------------


def permuted(example: Example) -> Iterator[dict[str, Any]]:
    """Every permutation in the place of each permutation, up to rank 4."""
    names = [name for name, value in example.items() if _is_permutation(value)]
    lists = [[list(order) for order in itertools.permutations(range(min(len(example[name]), RANK)))] for name in names]
    if names:
        for orders in itertools.product(*lists):
            yield {**example, **dict(zip(names, orders, strict=True))}


def _is_permutation(value: Any) -> bool:
    return _is_list_of_integers(value) and len(value) > 1 and sorted(value) == list(range(len(value)))


def of_equal_sizes(example: Example, rank: int) -> Iterator[dict[str, Any]]:
    """Tensors of a rank whose sizes are all 2, with every permutation of their axes, and every axis.

    Where sizes are equal, types do not tell axes that are exchanged. A rotation of the axes comes first, because it is
    not its own inverse, as an exchange of two axes is.
    """
    types = {name: type_ for name, value in example.items() if (type_ := ExampleType.parsed(value))}
    old = max((len(type_.sizes) for type_ in types.values()), default=0)
    if old == 0:
        return
    if old == rank:
        made = with_sizes(example, dict.fromkeys(sizes_in(example, set()), 2))
    else:
        made = dict(example)
        made |= {name: str(replace(t, sizes=(2,) * rank)) for name, t in types.items() if len(t.sizes) == old}
        counts = {math.prod(type_.sizes) for type_ in types.values() if len(type_.sizes) == old}
        for name, value in example.items():
            if _is_list_of_integers(value) and value:
                if math.prod(value) in counts and min(value) > 0 and not _is_permutation(value):
                    made[name] = _of_product(2**rank, len(value))
                elif len(value) == old:
                    made[name] = [*value, *value * rank][:rank]
    orders = [name for name, value in example.items() if _is_permutation(value) and len(value) == old]
    listed = sorted(itertools.permutations(range(min(rank, RANK))), key=lambda order: not _is_rotation(order))
    for order in listed if orders else ():
        yield made | {name: list(order) for name in orders}
    for each in itertools.product(listed[:_FEW], repeat=len(orders)) if len(orders) > 1 else ():
        yield made | {name: list(order) for name, order in zip(orders, each, strict=True)}
    if not orders:
        yield made
        for name, value in made.items():
            if type(value) is int and 0 <= value < rank:
                yield from (made | {name: axis} for axis in range(rank) if axis != value)


def _of_product(count: int, length: int) -> list[int]:
    """Sizes with as many elements as a power of two; all but the first are 2, as long as that is possible."""
    sizes = [2 if count >= 2 ** (place + 1) else 1 for place in range(1, length)]
    return [count // math.prod(sizes), *sizes]


def _is_rotation(order: Sequence[int]) -> bool:
    """Whether no axis stays, and no two axes are exchanged."""
    return all(order[axis] != place and order[place] != axis for place, axis in enumerate(order))


def with_axes(example: Example) -> Iterator[dict[str, Any]]:
    """Every axis in the place of a number that may be one; of a short list, every list of axes of its length."""
    rank = max((len(type_.sizes) for value in example.values() if (type_ := ExampleType.parsed(value))), default=1)
    for name, value in example.items():
        if type(value) is int:
            yield from ({**example, name: axis} for axis in range(-rank, rank))
        elif _is_list_of_integers(value) and len(value) <= rank:
            every = itertools.product(range(-rank, rank), repeat=len(value))
            yield from ({**example, name: list(axes)} for axes in every if len({a % rank for a in axes}) == len(axes))


def with_bools(example: Example) -> Iterator[dict[str, Any]]:
    """Both values of each bool."""
    names = [name for name, value in example.items() if isinstance(value, bool)]
    for values in itertools.product((False, True), repeat=len(names)) if names else ():
        yield {**example, **dict(zip(names, values, strict=True))}


def resized(example: Example) -> Iterator[dict[str, Any]]:
    """Every small size in the place of each size that an example has, and of two sizes together."""
    sizes = sorted(set(sizes_in(example, set())))
    for changed in (*((size,) for size in sizes), *itertools.combinations(sizes, 2)):
        for instead in itertools.product((*SIZES, *(changed[0] + 1,)), repeat=len(changed)):
            yield with_sizes(example, dict(zip(changed, instead, strict=True)))


def exchanged(example: Example) -> Iterator[dict[str, Any]]:
    """Every small number of the example in the place of each of its numbers: starts, ends, steps and sizes."""
    places = [
        (name, place)
        for name, value in example.items()
        if type(value) is int or _is_list_of_integers(value)
        for place in ([None] if type(value) is int else range(len(value)))
        if abs(_at(example, (name, place))) <= LARGEST_SIZE
    ]
    if not 1 < len(places) <= 6:
        return
    pool = sorted({_at(example, place) for place in places})
    for numbers in itertools.product(pool, repeat=len(places)):
        changed = {name: list(value) if _is_list_of_integers(value) else value for name, value in example.items()}
        for (name, place), number in zip(places, numbers, strict=True):
            if place is None:
                changed[name] = number
            else:
                changed[name][place] = number
        yield changed


def _at(example: Example, where: tuple[str, int | None]) -> int:
    name, place = where
    number: int = example[name] if place is None else example[name][place]
    return number


def sliced(example: Example) -> Iterator[dict[str, Any]]:
    """Two lists of the same length, such as starts and ends, moved in one place, or with small numbers there."""
    lists = [name for name, value in example.items() if _is_list_of_integers(value)]
    pairs = [(a, b) for a, b in itertools.combinations(lists, 2) if len(example[a]) == len(example[b])]
    places = [(one, other, place) for one, other in pairs for place in range(len(example[one]))]
    for moved in (1, 2, 3):
        for one, other, place in places:
            yield {**example, **{n: _put(example[n], place, example[n][place] + moved) for n in (one, other)}}
    for first, second in itertools.product(range(-3, 4), range(-3, 4)):
        for one, other, place in places:
            yield {**example, one: _put(example[one], place, first), other: _put(example[other], place, second)}


def _put(items: Sequence[int], place: int, number: int) -> list[int]:
    return [*items[:place], number, *items[place + 1 :]]


def typed(example: Example) -> Iterator[dict[str, Any]]:
    """Other element types of all floats, of all integers, and integers in the place of floats."""
    for element in ("f16", "bf16"):
        yield {name: of_element(value, element) if isinstance(value, str) else value for name, value in example.items()}
    types = {name: type_ for name, value in example.items() if (type_ := ExampleType.parsed(value))}
    for element in ("si32", "si8", "si16", "ui8", "si64", "i1"):
        yield {
            **example,
            **{n: str(replace(t, element=element, limits=None if t.is_float else t.limits)) for n, t in types.items()},
        }


TOGETHER: tuple[Callable[[Example], Iterator[dict[str, Any]]], ...] = (
    permuted, with_axes, with_bools, resized, exchanged, sliced, typed,
)  # fmt: skip
"""The changes of several parts together; the name of each is an aspect."""


def spread(items: Iterator[Any], most: int = 20000) -> Iterator[Any]:
    """The items in an order in which a prefix has some of everything."""
    listed = list(itertools.islice(items, most))
    step = next(step for step in (7919, 7907, 7901, 1) if not listed or len(listed) % step)
    for index in range(len(listed)):
        yield listed[index * step % len(listed)]


def in_turn(iterators: Sequence[Iterator[Any]]) -> Iterator[Any]:
    """The first item of each iterator, then the second of each, and so on."""
    left = list(iterators)
    while left:
        for iterator in list(left):
            try:
                yield next(iterator)
            except StopIteration:
                left.remove(iterator)

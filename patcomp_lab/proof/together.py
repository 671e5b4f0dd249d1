"""Changes of an example in several parts together, and the order in which they are tried."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from patcomp.patterns.example_types import ExampleType
from patcomp_lab.proof.changes import CHANGED_SIZES, RANK, ExampleValues, is_list_of_integers
from patcomp_lab.proof.drawing import LARGEST_DRAWN_SIZE, of_element, sizes_in, with_other_sizes

_FEW = 8
"""How many orders of axes are listed where there are several permutations."""


def permuted_example(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Every permutation in the place of each permutation, up to rank 4."""
    names = [name for name, value in example.items() if _is_permutation(value)]
    lists = [[list(order) for order in itertools.permutations(range(min(len(example[name]), RANK)))] for name in names]
    if names:
        for orders in itertools.product(*lists):
            yield {**example, **dict(zip(names, orders, strict=True))}


def _is_permutation(value: Any) -> bool:
    return is_list_of_integers(value) and len(value) > 1 and sorted(value) == list(range(len(value)))


def of_equal_sizes(example: ExampleValues, rank: int) -> Iterator[dict[str, Any]]:
    """Tensors of a rank whose sizes are all 2, with every permutation of their axes, and every axis.

    Where sizes are equal, types do not tell axes that are exchanged. A rotation of the axes comes first, because it is
    not its own inverse, as an exchange of two axes is.
    """
    types = {name: type_ for name, value in example.items() if (type_ := ExampleType.parsed(value))}
    old = max((len(type_.sizes) for type_ in types.values()), default=0)
    if old == 0:
        return
    if old == rank:
        made = with_other_sizes(example, dict.fromkeys(sizes_in(example, set()), 2))
    else:
        made = dict(example)
        made |= {name: str(replace(t, sizes=(2,) * rank)) for name, t in types.items() if len(t.sizes) == old}
        counts = {math.prod(type_.sizes) for type_ in types.values() if len(type_.sizes) == old}
        for name, value in example.items():
            if is_list_of_integers(value) and value:
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
    return all(axis != place and order[axis] != place for place, axis in enumerate(order))


def with_axes(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Every axis in the place of a number that may be one; of a short list, every list of axes of its length."""
    rank = max((len(type_.sizes) for value in example.values() if (type_ := ExampleType.parsed(value))), default=1)
    for name, value in example.items():
        if type(value) is int:
            yield from ({**example, name: axis} for axis in range(-rank, rank))
        elif is_list_of_integers(value) and len(value) <= rank:
            every = itertools.product(range(-rank, rank), repeat=len(value))
            yield from ({**example, name: list(axes)} for axes in every if len({a % rank for a in axes}) == len(axes))


def with_bools(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Both values of each bool."""
    names = [name for name, value in example.items() if isinstance(value, bool)]
    for values in itertools.product((False, True), repeat=len(names)) if names else ():
        yield {**example, **dict(zip(names, values, strict=True))}


def resized(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Every small size in the place of each size that an example has, and of two sizes together."""
    sizes = sorted(set(sizes_in(example, set())))
    for changed in (*((size,) for size in sizes), *itertools.combinations(sizes, 2)):
        for instead in itertools.product((*CHANGED_SIZES, *(changed[0] + 1,)), repeat=len(changed)):
            yield with_other_sizes(example, dict(zip(changed, instead, strict=True)))


def exchanged_numbers(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Every small number of the example in the place of each of its numbers: starts, ends, steps and sizes."""
    places = [
        (name, place)
        for name, value in example.items()
        if type(value) is int or is_list_of_integers(value)
        for place in ([None] if type(value) is int else range(len(value)))
        if abs(_at(example, (name, place))) <= LARGEST_DRAWN_SIZE
    ]
    if not 1 < len(places) <= 6:
        return
    pool = sorted({_at(example, place) for place in places})
    for numbers in itertools.product(pool, repeat=len(places)):
        changed = {name: list(value) if is_list_of_integers(value) else value for name, value in example.items()}
        for (name, place), number in zip(places, numbers, strict=True):
            if place is None:
                changed[name] = number
            else:
                changed[name][place] = number
        yield changed


def _at(example: ExampleValues, where: tuple[str, int | None]) -> int:
    name, place = where
    number: int = example[name] if place is None else example[name][place]
    return number


def sliced(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Two lists of the same length, such as starts and ends, moved in one place, or with small numbers there."""
    lists = [name for name, value in example.items() if is_list_of_integers(value)]
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


def with_types(example: ExampleValues) -> Iterator[dict[str, Any]]:
    """Other element types of all floats, of all integers, and integers in the place of floats."""
    for element in ("f16", "bf16"):
        yield {name: of_element(value, element) if isinstance(value, str) else value for name, value in example.items()}
    types = {name: type_ for name, value in example.items() if (type_ := ExampleType.parsed(value))}
    for element in ("si32", "si8", "si16", "ui8", "si64", "i1"):
        yield {
            **example,
            **{n: str(replace(t, element=element, limits=None if t.is_float else t.limits)) for n, t in types.items()},
        }


TOGETHER: tuple[Callable[[ExampleValues], Iterator[dict[str, Any]]], ...] = (
    permuted_example, with_axes, with_bools, resized, exchanged_numbers, sliced, with_types,
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

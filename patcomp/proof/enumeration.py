"""The programs on which a rule is proved: every small one near the rule's example, listed and not drawn.

The list has each alternative and operand order of the rule, all permutations up to rank 4 in the place of a
permutation, all axes, both values of a bool, small sizes, broadcasts, other ranks, slices with every small start, end
and step, and other element types. Some programs are invalid, and some do not match; the caller skips these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from patcomp.patterns import Rule
from patcomp.patterns.example_types import ExampleType
from patcomp.patterns.language import Attr
from patcomp.proof.drawing import Drawing, draw, of_element, other_ranks, sizes_in, with_sizes
from patcomp.proof.selftest import variants

RANK = 4
"""The largest rank whose permutations are all listed."""

SIZES = (1, 2, 3, 4)
"""The sizes that take the place of each size of an example."""

LENGTH = 5
"""The largest length whose slices are all listed."""


def enumerated(rule: Rule, count: int) -> Iterator[Drawing]:
    """Programs of a declarative rule's source, each once, the example in all variants first.

    Args:
        count: the largest number of variants, and of programs of each aspect.
    """
    known = variants(rule)
    chosen = known[:: -(-len(known) // count)]
    plain = [draw(rule, variant, lambda options: options[0], ()) for variant in chosen]
    seen: set[str] = set()
    for drawing in itertools.chain(plain, *(_of_aspects(first, count) for first in plain[:2])):
        if (key := str(drawing)) not in seen:
            seen.add(key)
            yield drawing


def _of_aspects(first: Drawing, count: int) -> Iterator[Drawing]:
    captures = first.rule.graph.captures
    words = {
        name for name, value in first.example.items() if isinstance(value, str) and isinstance(captures[name], Attr)
    }
    aspects = (_permuted, _with_axes, _with_bools, _resized, _broadcast, _sliced, _typed)
    for aspect in aspects:
        for changed in itertools.islice(
            _spread(aspect({n: v for n, v in first.example.items() if n not in words})), count
        ):
            yield replace(first, example={**first.example, **changed}, aspect=aspect.__name__.strip("_"))
    yield from itertools.islice(other_ranks(first), count)


def _spread(examples: Iterator[dict[str, Any]], most: int = 20000) -> Iterator[dict[str, Any]]:
    """The examples in an order in which a prefix has some of everything."""
    listed = list(itertools.islice(examples, most))
    step = next(step for step in (7919, 7907, 7901, 1) if not listed or len(listed) % step)
    for index in range(len(listed)):
        yield listed[index * step % len(listed)]


def _is_permutation(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(type(v) is int for v in value)
        and sorted(value) == list(range(len(value)))
    )


def _permuted(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = [name for name, value in example.items() if _is_permutation(value)]
    lists = [[list(order) for order in itertools.permutations(range(min(len(example[name]), RANK)))] for name in names]
    if names:
        for orders in itertools.product(*lists):
            yield {**example, **dict(zip(names, orders, strict=True))}


def _with_axes(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every axis in the place of a number that may be one; of a short list, every list of axes of its length."""
    rank = max((len(type_.sizes) for value in example.values() if (type_ := ExampleType.parsed(value))), default=1)
    for name, value in example.items():
        if type(value) is int:
            yield from ({**example, name: axis} for axis in range(-rank, rank))
        elif isinstance(value, list) and len(value) <= rank and all(type(item) is int for item in value):
            every = itertools.product(range(-rank, rank), repeat=len(value))
            yield from ({**example, name: list(axes)} for axes in every if len({a % rank for a in axes}) == len(axes))


def _with_bools(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    names = [name for name, value in example.items() if isinstance(value, bool)]
    for values in itertools.product((False, True), repeat=len(names)) if names else ():
        yield {**example, **dict(zip(names, values, strict=True))}


def _resized(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every small size in the place of each size that an example has, and of two sizes together."""
    sizes = sorted(set(sizes_in(example, set())))
    for changed in (*((size,) for size in sizes), *itertools.combinations(sizes, 2)):
        for instead in itertools.product(SIZES, repeat=len(changed)):
            yield with_sizes(example, dict(zip(changed, instead, strict=True)))


def _broadcast(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A dimension of one tensor that is 1, or that differs from the others; a tensor without its first dimensions."""
    for name, value in example.items():
        if (type_ := ExampleType.parsed(value)) is None:
            continue
        for axis, size in itertools.product(range(len(type_.sizes)), (1, 2, 3)):
            yield {**example, name: str(replace(type_, sizes=(*type_.sizes[:axis], size, *type_.sizes[axis + 1 :])))}
        for left in range(len(type_.sizes)):
            yield {**example, name: str(replace(type_, sizes=type_.sizes[left + 1 :]))}
        yield {**example, name: str(replace(type_, sizes=(2, *type_.sizes)))}


def _sliced(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every small number in each place of the lists of numbers: starts, ends and steps, shapes and paddings."""
    lists = [name for name, value in example.items() if isinstance(value, list) and all(type(v) is int for v in value)]
    for name in lists:
        for place, number in itertools.product(range(len(example[name])), range(-LENGTH, LENGTH + 1)):
            yield {**example, name: [*example[name][:place], number, *example[name][place + 1 :]]}
    for one, other in itertools.combinations(lists, 2):
        if len(example[one]) == len(example[other]):
            for place in range(len(example[one])):
                for first, second in itertools.product(range(-3, 4), range(-3, 4)):
                    yield {
                        **example,
                        one: [*example[one][:place], first, *example[one][place + 1 :]],
                        other: [*example[other][:place], second, *example[other][place + 1 :]],
                    }


def _typed(example: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for element in ("f16", "bf16"):
        yield {name: of_element(value, element) if isinstance(value, str) else value for name, value in example.items()}

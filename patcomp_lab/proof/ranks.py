"""Other ranks of the tensors of an example, and other lengths of its lists.

A rule that unpacks a captured list, or indexes a shape, may raise on a list or shape of another length. Sizes are added
and merged so that the number of elements stays, because a view of another number of elements is no valid program. The
same change is made to all arguments, to some kinds of them, and to each alone; the caller skips invalid programs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patcomp.patterns.example_types import ExampleType


@dataclass(frozen=True)
class _Change:
    """A change of rank and length."""

    in_front: int = 0
    """How many dimensions are added in front. If negative, so many of the first dimensions are merged into the next."""
    behind: int = 0
    """How many dimensions are added at the end."""
    nothing: bool = False
    """Whether tensors become 0-d, and lists empty."""

    def of_argument(self, value: Any, *, is_axes: bool) -> Any:
        """The changed argument: a type, a list of types, an axis, or a list of axes or sizes."""
        if isinstance(value, str):
            return self._of_type(value)
        if isinstance(value, list | tuple):
            if any(isinstance(item, str | list | tuple) or item is None for item in value):
                return [self.of_argument(item, is_axes=is_axes) for item in value]
            if self.nothing:
                return []
            return (self._of_axes if is_axes or _is_permutation(value) else self._of_sizes)(list(value))
        return self._of_axis(value) if is_axes and type(value) is int else value

    def _of_type(self, text: str) -> str:
        type_ = ExampleType.parsed(text)
        if type_ is None:
            return text
        return str(replace(type_, sizes=() if self.nothing else tuple(self._of_sizes(list(type_.sizes)))))

    def _of_sizes(self, sizes: list[Any]) -> list[Any]:
        new = 0 if 0 in sizes else 1  # a list with 0 has starts or paddings, not sizes
        merged = min(1 - self.in_front, len(sizes))
        if merged > 1:
            sizes = [math.prod(sizes[:merged]), *sizes[merged:]]
        return [new] * self.in_front + sizes + [new] * self.behind

    def _of_axes(self, axes: list[int]) -> list[int]:
        if not _is_permutation(axes):
            moved = list(dict.fromkeys(map(self._of_axis, axes)))
            return moved + [axis for axis in range(len(moved) + self.behind) if axis not in moved][: self.behind]
        kept = [*range(self.in_front), *(axis + self.in_front for axis in axes if axis + self.in_front >= 0)]
        return kept + list(range(len(kept), len(kept) + self.behind))

    def _of_axis(self, axis: int) -> int:
        return axis - self.behind if axis < 0 else max(axis + self.in_front, 0)


_CHANGES = (*(_Change(in_front=count) for count in (1, 2, -1, -2, -3)), _Change(behind=1), _Change(nothing=True))


def with_other_ranks(example: Mapping[str, Any], axes: Collection[str]) -> Iterator[dict[str, Any]]:
    """The example with tensors of other ranks and lists of other lengths, each combination once.

    Args:
        example: arguments or captures by name.
        axes: the names of those that are axes.
    """
    names = list(example)
    tensors = [name for name in names if _has_tensors(example[name])]
    lists = [name for name in names if isinstance(example[name], list | tuple) and name not in tensors]
    others = [name for name in names if name not in lists]
    together = [names, others, lists, *([*others, name] for name in lists), *([name] for name in [*tensors, *lists])]
    made: list[Mapping[str, Any]] = [example]
    for change in _CHANGES:
        for chosen in together:
            changed = {
                name: change.of_argument(value, is_axes=name in axes) if name in chosen else value
                for name, value in example.items()
            }
            if changed not in made:
                made.append(changed)
                yield changed
    for name in names:
        for shorter in _of_other_lengths(example[name]):
            if (changed := {**example, name: shorter}) not in made:
                made.append(changed)
                yield changed


def _of_other_lengths(value: Any) -> Iterator[Sequence[Any]]:
    """A list without its last item, and with it twice."""
    if isinstance(value, list | tuple) and value:
        yield list(value[:-1])
        yield [*value, value[-1]]


def _has_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_tensors, value))
    return ExampleType.parsed(value) is not None


def _is_permutation(items: Sequence[Any]) -> bool:
    return len(items) > 1 and sorted(items) == list(range(len(items)))

"""Views and permutations of values, for rules that move them or look around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from patcomp.authoring import aten
from patcomp.ir.aten import AtenOp
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.types import tensor
from patcomp.ir.value import Value


def known_sizes(sizes: Sequence[Any]) -> bool:
    """Whether all sizes are known numbers."""
    return all(type(size) is int and size >= 0 for size in sizes)


def viewed(x: Value, size: Sequence[int | Value]) -> Value:
    """`x` in another shape, of which one size may be -1; `x` itself where that is its own."""
    if extents(x) == extents_of(size):
        return x
    shape = [number if isinstance(number, int) and number >= 0 else None for number in size]
    if -1 in size and x.is_static and shape.count(None) == 1:
        known = math.prod(number for number in shape if number is not None)
        shape[list(size).index(-1)] = math.prod(x.static_shape) // max(known, 1)
    return aten.view(tensor(tuple(shape), x.element_type), x, size=list(size))


def last_two_swapped(rank: int) -> list[int]:
    """The order of axes that transposes the last two."""
    return [*range(rank - 2), rank - 1, rank - 2]


def permuted(x: Value, order: Sequence[int]) -> Value:
    """`x` with its axes in another order; `x` itself where that is its own."""
    if list(order) == sorted(order):
        return x
    shape = tuple(x.shape[axis] for axis in order)
    return aten.permute(tensor(shape, x.element_type), x, dims=list(order))


def arguments_of(value: Value, *names: str) -> dict[str, Any] | None:
    """The arguments of the op that computes a value, if it is one of these ops (`"view"`); None otherwise."""
    maker = value.made_by(*(f"aten.{name}" for name in names))
    return dict(maker.arguments_by_name()) if isinstance(maker, AtenOp) else None


def read_by(value: Value, *names: str) -> list[Value]:
    """The first result of each op that reads a value and has one of these names (`"view"`)."""
    ops = {f"aten.{name}" for name in names}
    return [Value(user.results[0]) for user in value.users if user.name in ops]


def without_views(value: Value) -> Value:
    """A value before it was given further dimensions of size 1."""
    while (view := arguments_of(value, "view", "unsqueeze")) is not None:
        if [size for size in view["self"].shape if size != 1] != [size for size in value.shape if size != 1]:
            return value
        value = view["self"]
    return value

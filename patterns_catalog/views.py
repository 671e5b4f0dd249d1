"""Views and permutations of values, for rules that move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import aten
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.types import tensor
from patcomp.ir.value import Value


def known_sizes(sizes: Sequence[Any]) -> bool:
    """Whether all sizes are known numbers."""
    return all(type(size) is int and size >= 0 for size in sizes)


def viewed(x: Value, size: Sequence[int | Value]) -> Value:
    """`x` in another shape; `x` itself where that is its own."""
    if extents(x) == extents_of(size):
        return x
    shape = tuple(number if isinstance(number, int) else None for number in size)
    return aten.view(tensor(shape, x.element_type), x, size=list(size))


def permuted(x: Value, order: Sequence[int]) -> Value:
    """`x` with its axes in another order; `x` itself where that is its own."""
    if list(order) == sorted(order):
        return x
    shape = tuple(x.shape[axis] for axis in order)
    return aten.permute(tensor(shape, x.element_type), x, dims=list(order))

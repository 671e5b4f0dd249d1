"""Remove the axes of size 1 that einsum puts around its product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.extents import extents_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Rewrite, any_of, build, check, rule
from patcomp.patterns.match import Match
from patterns_catalog.sizes import Size
from patterns_catalog.views import permuted, viewed


def _wide(order: Sequence[int], shape: Sequence[Any]) -> list[int]:
    """The axes of a permutation that are not of size 1: where those are makes no difference."""
    return [axis for axis in order if shape[axis] != 1]


def _composed(count: int, *orders: list[int] | None) -> list[int]:
    """The permutation that several make one after the other; they may count from the end, and None changes nothing."""
    axes = list(range(count))
    for order in orders:
        axes = axes if order is None else [axes[axis] for axis in order]
    return axes


def _factor(x: Value, place: int, first: list[int] | None, second: list[int] | None, size: list[Size]) -> Value:
    """A view of x, permuted as it was with the axis that einsum put in at `place`."""
    new = place % (x.rank + 1)
    order = [axis - (axis > new) for axis in _composed(x.rank + 1, first, second) if axis != new]
    moved = _wide(order, x.shape)
    at = dict(zip(sorted(moved), moved, strict=True))
    return viewed(permuted(x, [at.get(axis, axis) for axis in range(x.rank)]), size)


@rule(stage="normalize", into=aten_namespace, example={
    "x": "2x4x3x8xf32", "place": 4, "first": [0, 1, 4, 2, 3], "second": [0, 1, 4, 3, 2], "size": [8, 8, 3],
})  # fmt: skip
def einsum_factor(
    a: AtenSource, c: AtenTarget, x: Capture, place: Attr, first: Attr, second: Attr, size: Attr
) -> Rewrite:
    "view(permute(permute(unsqueeze(x)))) to view(permute(x)): einsum gives each factor the axes of the others"
    wide = a.unsqueeze(x, dim=place)
    once = a.permute(wide, dims=first)
    return Rewrite(
        a.view(any_of(a.permute(once, dims=second), once, wide), size=size),
        to=build(_factor, x, place, first, second, size),
    )


def _product(x: Value, inner: list[Size], order: list[int], size: list[Size]) -> Value:
    """A batched product as einsum arranges it, without the axes of size 1 that it drops."""
    moved = _wide([axis % len(inner) for axis in order], inner)  # permutations may count from the end
    places = _wide(range(len(size)), size)
    place_of = dict(zip(sorted(moved), places, strict=True))
    sizes = {place: inner[axis] for axis, place in place_of.items()}
    arranged = {place: place_of[axis] for place, axis in zip(places, moved, strict=True)}
    split = viewed(x, [sizes.get(axis, 1) for axis in range(len(size))])
    return permuted(split, [arranged.get(axis, axis) for axis in range(len(size))])


def _drops_axes(match: Match) -> bool:
    inner, order, size = match["inner"], match["order"], match["size"]
    moved = extents_of(inner[axis] for axis in _wide(order, inner))
    return len(inner) > len(size) and moved == [number for number in extents_of(size) if number != 1]


@rule(stage="normalize", into=aten_namespace, example={
    "x": "8x3x8xf32", "y": "8x8x5xf32", "inner": [2, 4, 3, 1, 5], "order": [0, 2, 1, 4, 3], "size": [2, 3, 4, 5],
})  # fmt: skip
def einsum_product(
    a: AtenSource, c: AtenTarget, x: Capture, y: Capture, inner: Attr, order: Attr, size: Attr
) -> Rewrite:
    "view(permute(view(bmm))) to permute(view(bmm)), where einsum drops axes of size 1 from the product"
    batched = a.bmm(x, y)
    return Rewrite(
        a.view(a.permute(a.view(batched, size=inner), dims=order), size=size),
        to=build(_product, batched, inner, order, size),
        where=[check("only axes of size 1 are dropped", _drops_axes)],
    )

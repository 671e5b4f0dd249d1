"""Remove the axes of size 1 that einsum puts around its product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import AtenSource, Targets
from patcomp.ir.extents import extents_of
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Attr, Capture, FunctionTable, Rewrite, any_of, check, rule
from patcomp.patterns.match import Match
from patterns_catalog.sizes import Size
from patterns_catalog.views import permuted, viewed

_TABLE = FunctionTable("einsum")


def _wide(order: Sequence[int], shape: Sequence[Any]) -> list[int]:
    """The axes of a permutation that are not of size 1: where those are makes no difference."""
    return [axis for axis in order if shape[axis] != 1]


@_TABLE.define
def factor(
    x: Value, *, place: int, first: list[int] | None, second: list[int] | None, size: list[Size],
    result_types: list[Attribute],
) -> Value:  # fmt: skip
    """A view of x, permuted as it was with the axis that einsum put in at `place`."""
    axes = list(range(x.rank + 1))
    # permutations may count from the end
    order = [(first or axes)[axis] % len(axes) for axis in second or axes]
    new = place % (x.rank + 1)
    moved = _wide([axis - (axis > new) for axis in order if axis != new], x.shape)
    places = iter(moved)
    order = [next(places) if axis in moved else axis for axis in range(x.rank)]
    return viewed(permuted(x, order), size)


@rule(stage="normalize", into=_TABLE, example={
    "x": "2x4x3x8xf32", "place": 4, "first": [0, 1, 4, 2, 3], "second": [0, 1, 4, 3, 2], "size": [8, 8, 3],
})  # fmt: skip
def einsum_factor(a: AtenSource, c: Targets, x: Capture, place: Attr, first: Attr, second: Attr, size: Attr) -> Rewrite:
    "view(permute(permute(unsqueeze(x)))) to view(permute(x)): einsum gives each factor the axes of the others"
    wide = a.unsqueeze(x, dim=place)
    once = a.permute(wide, dims=first)
    return Rewrite(
        a.view(any_of(a.permute(once, dims=second), once, wide), size=size),
        to=c.factor(x, place=place, first=first, second=second, size=size),
    )


@_TABLE.define
def product(
    x: Value, *, inner: list[Size], order: list[int], size: list[Size], result_types: list[Attribute]
) -> Value:  # fmt: skip
    """A batched product as einsum arranges it, without the axes of size 1 that it drops."""
    moved = _wide([axis % len(inner) for axis in order], inner)  # permutations may count from the end
    places = _wide(range(len(size)), size)
    split: list[Size] = [1] * len(size)
    arranged = list(range(len(size)))
    for place, now, before in zip(places, moved, sorted(moved), strict=True):
        split[place] = inner[before]
        arranged[place] = places[sorted(moved).index(now)]
    return permuted(viewed(x, split), arranged)


def _drops_axes(match: Match) -> bool:
    inner, order, size = match["inner"], match["order"], match["size"]
    moved = extents_of(inner[axis] for axis in _wide(order, inner))
    return len(inner) > len(size) and moved == [number for number in extents_of(size) if number != 1]


@rule(stage="normalize", into=_TABLE, example={
    "x": "8x3x8xf32", "y": "8x8x5xf32", "inner": [2, 4, 3, 1, 5], "order": [0, 2, 1, 4, 3], "size": [2, 3, 4, 5],
})  # fmt: skip
def einsum_product(a: AtenSource, c: Targets, x: Capture, y: Capture, inner: Attr, order: Attr, size: Attr) -> Rewrite:
    "view(permute(view(bmm))) to permute(view(bmm)), where einsum drops axes of size 1 from the product"
    batched = a.bmm(x, y)
    return Rewrite(
        a.view(a.permute(a.view(batched, size=inner), dims=order), size=size),
        to=c.product(batched, inner=inner, order=order, size=size),
        where=[check("only axes of size 1 are dropped", _drops_axes)],
    )

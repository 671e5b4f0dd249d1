"""What PyTorch takes apart around attention, put together again: batched products, repeated heads, fixed numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from patcomp.ir import aten, coreai
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import is_float, is_integer, static_shape, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import (
    ANY,
    Attr,
    CompositeTable,
    Const,
    OpView,
    Rewrite,
    any_of,
    check,
    compute,
    example,
    normalization,
    rule,
)
from patcomp.patterns.match import Match
from patterns_catalog.numbers import exact_fill

_TABLE = CompositeTable("numbers")


def _batch_only(match: Match) -> bool:
    """Whether both views only join leading dimensions, and the outer one splits them again."""
    x, y, left, right, size = (match[name] for name in ("x", "y", "left", "right", "size"))
    if not (x.is_static and y.is_static and _whole(left) and _whole(right) and _whole(size)):
        return False
    if not (x.rank == y.rank == len(size) >= 4 and len(left) == len(right) == 3):
        return False
    count = math.prod(size[:-2])
    return (
        left == [count, *x.shape[-2:]]
        and right == [count, *y.shape[-2:]]
        and size[-2:] == [x.shape[-2], y.shape[-1]]
        and all({i, j} <= {1, n} and n in (i, j) for i, j, n in zip(x.shape[:-2], y.shape, size[:-2], strict=False))
    )


def _whole(sizes: list[Any]) -> bool:
    """Whether sizes are known numbers."""
    return all(type(size) is int and size >= 0 for size in sizes)


@rule(stage="normalize", target=aten_namespace, example={
    "x": "2x4x3x8xf32", "y": "2x4x8x5xf32", "wide": [2, 4, 3, 8], "tall": [2, 4, 8, 5],
    "left": [8, 3, 8], "right": [8, 8, 5], "size": [2, 4, 3, 5],
})  # fmt: skip
def batched_matmul(
    a: Any, c: Any, x: Any, y: Any, wide: Attr, tall: Attr, left: Attr, right: Attr, size: Attr
) -> Rewrite:
    """view(bmm(view(expand(x)), view(expand(y)))) to matmul(x, y)

    PyTorch decomposes every product of more than three dimensions so, and models write it by hand (OPT, BART).
    """
    first = any_of(a.expand(x, size=wide, implicit=ANY), x)
    second = any_of(a.expand(y, size=tall, implicit=ANY), y)
    product = a.bmm(a.view(first, size=left), a.op("view", second, size=right))
    return Rewrite(
        a.view(product, size=size),
        to=c.matmul(x, y),
        where=[check("the views join and split batch dimensions", _batch_only)],
    )


def _repeats_heads(match: Match) -> bool:
    """Whether a new axis after the heads is filled with copies and joined with the heads."""
    x, place, wide, size = (match[name] for name in ("x", "place", "wide", "size"))
    if x.rank < 3 or not x.is_static or len(wide) != x.rank + 1 or not _whole(size):
        return False
    axis, (*batch, heads, length, width) = x.rank - 2, x.shape
    copies = wide[axis]
    return place % (x.rank + 1) == axis and _whole([copies]) and size == [*batch, heads * copies, length, width]


@rule(stage="normalize", target=aten_namespace, example={
    "x": "2x4x3x8xf32", "place": 2, "wide": [2, 4, 3, 3, 8], "size": [2, 12, 3, 8],
})  # fmt: skip
def repeated_heads(a: Any, c: Any, x: Any, place: Attr, wide: Attr, size: Attr) -> Rewrite:
    """view(expand(unsqueeze(x))) to repeat_interleave(x), for the heads of grouped queries

    `repeat_kv` of Llama, Mistral, Qwen, Gemma and Phi, and what PyTorch makes of `repeat_interleave`.
    """
    return Rewrite(
        a.view(a.expand(a.unsqueeze(x, dim=place), size=wide, implicit=ANY), size=size),
        to=c.op(
            "repeat_interleave.self_int",
            x,
            repeats=compute("copies", lambda match: match["wide"][match["x"].rank - 2]),
            dim=compute("the axis of the heads", lambda match: match["x"].rank - 3),
            output_size=None,
        ),
        where=[check("the new axis repeats heads", _repeats_heads)],
    )


@normalization("aten.full", "aten.scalar_tensor", name="normalize scalar", examples=[
    example([], 2.5, dtype="f32"), example(2, dtype="f32", op="aten.scalar_tensor"),
])  # fmt: skip
def scalar(op: OpView, a: Any) -> Value | None:
    "a tensor without dimensions as a constant, for instance the number that fills masked places"
    op.ignore("dtype", because="the result type has it")
    number = op.s if op.op_name == "aten.scalar_tensor" else op.fill_value
    element = op.result.element_type
    if op.result.rank or not isinstance(number, bool | int | float) or not (is_float(element) or is_integer(element)):
        return None
    op.ignore("size", because="there are no dimensions")
    try:
        return coreai.constant(exact_fill(number, element), element)
    except OverflowError:
        return None  # the lowering says why


@_TABLE.define
def root(x: Value, *, result_types: list[Attribute]) -> Value:
    """The square root of a constant, as a constant."""
    assert x.constant is not None
    return coreai.constant(math.sqrt(float(x.constant)), x.element_type)


@rule(stage="normalize", target=_TABLE, example={"x": 64.0})
def root_of_number(a: Any, c: Any, x: Const) -> Rewrite:
    "sqrt(64.) is 8., as in `scores / torch.sqrt(torch.tensor(64.))` (DeBERTa-v2)"
    return Rewrite(
        a.sqrt(x), to=c.root(x), where=[x.rank == 0, x.dtype.is_in("f32", "f16", "bf16", "f64"), x.value >= 0]
    )


# ---- einsum --------------------------------------------------------------------------------------


def _wide(order: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The axes of a permutation that are not of size 1: where those are makes no difference."""
    return [axis for axis in order if shape[axis] != 1]


def _permuted(x: Value, order: list[int]) -> Value:
    if order == sorted(order):
        return x
    shape = tuple(x.shape[axis] for axis in order)
    return aten.build("aten.permute", tensor(shape, x.element_type), self=x, dims=order)


def _viewed(x: Value, size: list[int]) -> Value:
    return aten.build("aten.view", tensor(tuple(size), x.element_type), self=x, size=size)


@_TABLE.define
def factor(
    x: Value, *, place: int, first: list[int] | None, second: list[int] | None, result_types: list[Attribute]
) -> Value:
    """A view of x, permuted as it was with the axis that einsum put in at `place`."""
    axes = list(range(x.rank + 1))
    order = [(first or axes)[axis] for axis in second or axes]
    new = place % (x.rank + 1)
    moved = _wide([axis - (axis > new) for axis in order if axis != new], x.static_shape)
    places = iter(moved)
    order = [next(places) if axis in moved else axis for axis in range(x.rank)]
    return _viewed(_permuted(x, order), list(static_shape(result_types[0])))


@rule(stage="normalize", target=_TABLE, example={
    "x": "2x4x3x8xf32", "place": 4, "first": [0, 1, 4, 2, 3], "second": [0, 1, 4, 3, 2], "size": [8, 8, 3],
})  # fmt: skip
def einsum_factor(a: Any, c: Any, x: Any, place: Attr, first: Attr, second: Attr, size: Attr) -> Rewrite:
    "view(permute(permute(unsqueeze(x)))) to view(permute(x)): einsum gives each factor the axes of the others"
    wide = a.unsqueeze(x, dim=place)
    once = a.permute(wide, dims=first)
    return Rewrite(
        a.view(any_of(a.permute(once, dims=second), once, wide), size=size),
        to=c.factor(x, place=place, first=first, second=second),
        where=[x.is_static, check("sizes are known", lambda match: _whole(match["size"]))],
    )


@_TABLE.define
def product(x: Value, *, inner: list[int], order: list[int], size: list[int], result_types: list[Attribute]) -> Value:
    """A batched product as einsum arranges it, without the axes of size 1 that it drops."""
    moved = _wide(order, inner)
    places = _wide(range(len(size)), size)
    split, arranged = [1] * len(size), list(range(len(size)))
    for place, now, before in zip(places, moved, sorted(moved), strict=True):
        split[place] = inner[before]
        arranged[place] = places[sorted(moved).index(now)]
    return _permuted(_viewed(x, split), arranged)


def _drops_axes(match: Match) -> bool:
    inner, order, size = match["inner"], match["order"], match["size"]
    if not _whole(inner) or not _whole(size) or len(inner) <= len(size):
        return False
    return [inner[axis] for axis in _wide(order, inner)] == [number for number in size if number != 1]


@rule(stage="normalize", target=_TABLE, example={
    "x": "8x3x8xf32", "y": "8x8x5xf32", "inner": [2, 4, 3, 1, 5], "order": [0, 2, 1, 4, 3], "size": [2, 3, 4, 5],
})  # fmt: skip
def einsum_product(a: Any, c: Any, x: Any, y: Any, inner: Attr, order: Attr, size: Attr) -> Rewrite:
    "view(permute(view(bmm))) to permute(view(bmm)), where einsum drops axes of size 1 from the product"
    batched = a.bmm(x, y)
    return Rewrite(
        a.view(a.permute(a.view(batched, size=inner), dims=order), size=size),
        to=c.product(batched, inner=inner, order=order, size=size),
        where=[check("only axes of size 1 are dropped", _drops_axes)],
    )

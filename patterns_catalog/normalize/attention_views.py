"""What PyTorch takes apart around attention, put together again: batched products, repeated heads, fixed numbers."""

from __future__ import annotations

import math
from typing import Any

from patcomp.ir import coreai
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import is_float, is_integer
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

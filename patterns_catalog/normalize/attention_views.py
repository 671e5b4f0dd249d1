"""What PyTorch takes apart around attention, put together again: batched products, repeated heads, fixed numbers."""

from __future__ import annotations

import math
from typing import Any

from patcomp.ir import coreai
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import is_float, is_integer
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, OpView, Rewrite, any_of, check, compute, example, normalization, rule
from patcomp.patterns.match import Match
from patterns_catalog.numbers import exact_fill


def _batch_only(match: Match) -> bool:
    """Whether both views only join leading dimensions, and the outer one splits them again."""
    x, y, result = match["x"], match["y"], match.value_of(match.rule.root)
    left, right = match["left"], match["right"]
    return (
        x.rank == y.rank == result.rank >= 4
        and x.is_static and y.is_static and result.is_static
        and len(left) == len(right) == 3
        and left == [math.prod(result.shape[:-2]), *x.shape[-2:]]
        and right == [math.prod(result.shape[:-2]), *y.shape[-2:]]
        and _joins(x.shape[:-2], y.shape[:-2], result.shape[:-2])
        and result.shape[-2:] == (x.shape[-2], y.shape[-1])
    )  # fmt: skip


def _joins(left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether two batch shapes broadcast to a third."""
    return all({a, b} <= {1, n} and n in (a, b) for a, b, n in zip(left, right, result, strict=True))


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
    x, result, wide = match["x"], match.value_of(match.rule.root), match["wide"]
    if x.rank < 3 or not x.is_static or not result.is_static or len(wide) != x.rank + 1:
        return False
    axis, (*batch, heads, length, width) = x.rank - 2, x.shape
    copies = wide[axis]
    return (
        match["place"] % (x.rank + 1) == axis
        and type(copies) is int
        and copies > 0
        and result.shape == (*batch, heads * copies, length, width)
    )


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


@normalization("aten.sqrt", name="normalize sqrt", examples=[example("f32[1,2]")])
def square_root(op: OpView, a: Any) -> Value | None:
    "the root of a number without dimensions is a number, as in `scores / sqrt(tensor(64.))`"
    x = op["self"]
    values = x.constant if x.rank == 0 and x.type == op.result else None
    if values is None or not values >= 0:
        return None
    return coreai.constant(math.sqrt(float(values)), op.result.element_type)

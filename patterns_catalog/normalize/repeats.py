"""Tensors that hold every value twice: computed once, and repeated as late as possible.

Models compute the angles of rotary position embeddings for half of a head, repeat them, and take cosine and sine of
both copies. After these rules the repetition comes last, so that it shows in the graph that both halves are equal.
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten, AtenSource, AtenTarget, aten
from patcomp.ir.aten import AtenOp
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import (
    ANY,
    LAST,
    Attr,
    Capture,
    Rewrite,
    any_of,
    build,
    check,
    compute,
    condition,
    example,
    formula,
    rule,
    tag,
)
from patcomp.patterns.match import Match
from patterns_catalog.repeats import twice_in_halves, twice_in_pairs


def _elementwise(a: AtenSource, x: Any, factor: Any, place: Any) -> Any:
    """The ops that may follow a repetition and change places with it."""
    return any_of(
        a.cos(x), a.sin(x), a._to_copy(x, dtype=ANY), x * factor, a.unsqueeze(x, dim=place),
        tag="op", tags=["cos", "sin", "_to_copy", "mul", "unsqueeze"],
    )  # fmt: skip


def _of_one_copy(result: Value, x: Value, factor: Value | None) -> Value:
    """The op that computes a result from two copies of x, of x."""
    op = result.maker
    assert isinstance(op, AtenOp)
    given = op.arguments_by_name()
    operands = {name: value for name, value in (("self", x), ("other", factor)) if name in given}
    type_ = tensor((*result.shape[:-1], x.shape[-1]), result.element_type)
    return aten.build(op.name, type_, **{**given, **operands})  # type: ignore[no-any-return]


def _in_halves(result: Value, x: Value, factor: Value | None) -> Value:
    """`cat([op(x), op(x)], -1)`"""
    made = _of_one_copy(result, x, factor)
    return aten.cat(result.type, [made, made], dim=-1)


def _in_pairs(result: Value, x: Value, factor: Value | None) -> Value:
    """`repeat_interleave(op(x), 2, -1)`"""
    made = _of_one_copy(result, x, factor)
    return aten.build(  # type: ignore[no-any-return]
        "aten.repeat_interleave.self_int", result.type, self=made, repeats=2, dim=made.rank - 1
    )


def _safe(x: Any, factor: Any, place: Any) -> list[Any]:
    """The op treats both copies alike: one factor for all, and no axis after the repeated one."""
    return [
        (tag("op") != "mul") | (factor.rank == 0),
        (tag("op") != "unsqueeze") | (place % (x.rank + 1) != x.rank),
        x.shape[-1] >= 1,
    ]


@rule(
    stage="normalize", into=aten_namespace, name="repeat halves last",
    example={"x": "2x3x4xf32", "factor": "f32", "place": 1},
)  # fmt: skip
def halves_last(a: AtenSource, c: AtenTarget, x: Capture, factor: Capture, place: Attr) -> Rewrite:
    "op(cat([x, x], -1)) to cat([op(x), op(x)], -1) (Llama, Mistral, Qwen, Gemma, Phi, GPT-NeoX)"
    result = _elementwise(a, twice_in_halves(a, x), factor, place)
    return Rewrite(result, to=build(_in_halves, result, x, factor), where=_safe(x, factor, place))


@rule(
    stage="normalize", into=aten_namespace, name="repeat pairs last",
    example={"x": "2x3x4xf32", "factor": "f32", "place": 1},
)  # fmt: skip
def pairs_last(a: AtenSource, c: AtenTarget, x: Capture, factor: Capture, place: Attr) -> Rewrite:
    "op(repeat_interleave(x, 2, -1)) to repeat_interleave(op(x), 2, -1) (Cohere, GPT-J)"
    result = _elementwise(a, twice_in_pairs(a, x), factor, place)
    return Rewrite(result, to=build(_in_pairs, result, x, factor), where=_safe(x, factor, place))


def _joins_pairs(match: Match) -> bool:
    """Whether the view joins a new last axis of size 2 with the one before."""
    *before, width = extents(match["x"]) or [0]
    return match["x"].rank > 0 and extents_of(match["flat"]) == [*before, 2 * width]


@rule(
    stage="normalize",
    into=aten_namespace,
    name="repeat pairs in one op",
    example={"x": "2x3x4xf32", "wide": [2, 3, 4, 2], "flat": [2, 3, 8]},
)
def pairs_in_one_op(a: AtenSource, c: AtenTarget, x: Capture, wide: Attr, flat: Attr) -> Rewrite:
    """view(expand(unsqueeze(x, -1))) and view(stack([x, x], -1)) to repeat_interleave(x, 2, -1)

    The first is what PyTorch makes of `repeat_interleave`; the second is in models that flatten a stack.
    """
    column, again = (a.escaping(a.unsqueeze(x, dim=LAST)) for _ in range(2))
    columns = any_of(
        a.expand(column, size=wide, implicit=ANY),
        a.cat([column, again], dim=LAST),
        tag="columns",
        tags=["expand", "cat"],
    )
    return Rewrite(
        a.view(a.escaping(columns), size=flat),
        to=c.op(
            "repeat_interleave.self_int",
            x, repeats=2, dim=compute("the last axis", lambda match: match["x"].rank - 1), output_size=None,
        ),
        where=[(tag("columns") == "cat") | (wide[-1] == 2), check("the view joins pairs", _joins_pairs)],
    )  # fmt: skip


@rule(
    stage="normalize", into=aten_namespace, name="slice of repeated halves",
    example={"x": "2x3x4xf32", "middle": 4},
)  # fmt: skip
def half_of_halves(a: AtenSource, c: AtenTarget, x: Capture, middle: Attr) -> Rewrite:
    "cat([x, x], -1)[..., :half] is x (GLM, Helium, Ernie)"
    return Rewrite(
        a.slice(twice_in_halves(a, x), dim=LAST, start=0, end=middle, step=1),
        to=x,
        where=[middle == x.shape[-1]],
    )


@condition("only the last of {rank} axes is repeated, once")
def _doubles_last(repeats: list[int], rank: int) -> bool:
    return rank > 1 and repeats == [1] * (rank - 1) + [2]


@formula("normalize", "aten.repeat", name="normalize repeat", examples=[example("2x3xf32", [1, 2])],
         where=lambda self, repeats: [_doubles_last(repeats, self.rank)])  # fmt: skip
def repeat(aten: Aten, self: Value, result: ValueType) -> Value:
    "the last axis twice is `cat([x, x], -1)`"
    return aten.cat(result, [self, self], dim=-1)

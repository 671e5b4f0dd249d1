"""Rotary position embeddings that models write out, as the composite.

A head's values are taken in pairs, and each pair is turned by an angle that depends on the position:
y1 = cos x1 - sin x2, y2 = sin x1 + cos x2 (Su et al. 2021, arXiv:2104.09864). The pairs are the two halves of the
head (Llama), or neighbours (GPT-J, `interleaved`); only the first `dims` values may be turned (GPT-NeoX).

Models keep the cosine and sine of each pair twice, as wide as the head. The composite takes them once, so these rules
ask for the repetition, which the normalize stage moves right before its use (`normalize/repeats.py`).

Some models turn the pairs the other way: y1 = cos x1 + sin x2, y2 = cos x2 - sin x1 (NanoChat). That is the composite
with -sin, with the same rounding, because a negation is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from patcomp.authoring import AtenSource, Composites, aten, coreai
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.value import Value
from patcomp.patterns import (
    ANY,
    LAST,
    Attr,
    Capture,
    Const,
    Rewrite,
    any_of,
    build,
    check,
    example,
    rule,
    tag,
)
from patcomp.patterns.language import AnyOf
from patcomp.patterns.match import Match
from patterns_catalog.composites.rope import rope
from patterns_catalog.repeats import twice_in_halves, twice_in_pairs


def _turning(sin: Value, way: str) -> Value:
    """The sine of a rotation, which is negated for the other way."""
    return aten.neg(sin.type, sin) if way == "back" else sin


def _turned(x: Value, cos: Value, sin: Value, way: str, interleaved: bool = False) -> Value:
    """The composite, either way round."""
    return rope(x, cos, _turning(sin, way), scale=1.0, base=10000.0, dims=None, interleaved=interleaved)


def _joined(first: Value, second: Value) -> Value:
    return coreai.concat(first.rank - 1, [first, second])


def _rope(total: Any, to: Any, where: list[Any], x: Any) -> Rewrite:
    """The composite for a formula, in which cosine and sine broadcast to the input, never the input to them."""

    def same(match: Match) -> bool:
        return match[total].type == match[x].type

    return Rewrite(total, to=to, where=[*where, check("the result has the type of x", same)])


# ---- parts of the formulas -------------------------------------------------------------------------


def _negative(x: Any) -> Any:
    return any_of(-x, x * -1.0)


def _cast_or(a: AtenSource, x: Any) -> AnyOf:
    """x, or x cast to another type. Each call is a node of its own: one cast for all uses and a cast for each match."""
    return any_of(a._to_copy(x, dtype=ANY), x)


def _exact(x: Any, again: Any, wide: Any) -> Any:
    """Whether x of a half type is cast to float32 at most, on each path to the sum."""
    return (again.dtype.is_in(x.dtype, wide.dtype)) & (
        (wide.dtype == x.dtype) | (x.dtype.is_in("f16", "bf16") & (wide.dtype == "f32"))
    )


def _cut(a: AtenSource, x: Any, sizes: tuple[Any, Any], end: Any, name: str) -> tuple[Any, Any, Any]:
    """The first values of the last axis, the others (both as slices or by a split), and the condition that the others
    reach to the end."""
    parts = a.split_with_sizes(x, split_sizes=list(sizes), dim=LAST)
    first = any_of(a.slice(x, dim=LAST, start=0, end=sizes[0], step=1), parts[0])
    others = a.slice(x, dim=LAST, start=sizes[0], end=end, step=1)
    second = any_of(others, parts[1], tag=name, tags=["slice", "split"])
    return first, second, (tag(name) == "split") | (end >= x.shape[-1])


def _neighbours(a: AtenSource, x: Any, end: Any) -> tuple[Any, Any, list[Any]]:
    """x[..., ::2], x[..., 1::2], and the conditions that these are all values."""
    even, odd = (a.slice(x, dim=LAST, start=start, end=end, step=2) for start in (0, 1))
    return even, odd, [end >= x.shape[-1], x.shape[-1] % 2 == 0]


Join = Callable[[Any, Any], Any]


def _in_halves(a: AtenSource) -> Join:
    return lambda first, second: a.cat([first, second], dim=LAST)


def _in_pairs(a: AtenSource, size: Any) -> Join:
    """stack([even, odd], -1).flatten(-2)"""
    return lambda even, odd: a.view(
        a.cat([a.unsqueeze(even, dim=LAST), a.unsqueeze(odd, dim=LAST)], dim=LAST), size=size
    )


def _flattens_to(x: Any, size: Attr) -> Any:
    """Whether the view of `_in_pairs` has the shape of x."""
    return check("the view joins pairs", lambda match: extents_of(match[size.name]) == extents(match[x]))


def _either_way(forward: Any, back: Any) -> AnyOf:
    return any_of(forward, back, tag="way", tags=["forward", "back"])


def _other_part(join: Join, first: Any, second: Any) -> Any:
    """What the sine multiplies: [-x2, x1], or the other way [x2, -x1]."""
    return _either_way(join(_negative(second), first), join(second, _negative(first)))


def _sums(join: Join, first: Any, second: Any, cos: Any, sin: Any) -> Any:
    """[x1 cos - x2 sin, x2 cos + x1 sin], or the other way [x1 cos + x2 sin, x2 cos - x1 sin]."""
    forward = join(first * cos - second * sin, second * cos + first * sin)
    other = any_of(second * cos - first * sin, second * cos + first * _negative(sin))
    return _either_way(forward, join(first * cos + second * sin, other))


# ---- the formulas ----------------------------------------------------------------------------------

_END = 2**63 - 1
_HALVES = {"x": "2x4x3x8xf32", "cos": "2x1x3x4xf32", "sin": "2x1x3x4xf32", "middle": 4, "end": _END}
_PAIRS = {"x": "2x4x3x8xf32", "cos": "2x1x3x4xf32", "sin": "2x1x3x4xf32", "end": _END, "flat": [2, 4, 3, 8]}


@rule(name="rope", example=_HALVES)
def of_halves(a: AtenSource, c: Composites, x: Capture, cos: Capture, sin: Capture, middle: Attr, end: Attr) -> Rewrite:
    """x * [cos, cos] + [-x2, x1] * [sin, sin] (Llama, Mistral, Qwen, Gemma, OLMo, Mixtral; Phi-3 of whole heads)

    The other way with [x2, -x1] (NanoChat). With tables in float32, x and [-x2, x1] of a half type are cast, each on
    its own (OLMo 2), or x is cast twice (ModernBERT); all these casts are exact.
    """
    again = _cast_or(a, x)
    x1, x2, to_the_end = _cut(a, again, (middle, middle), end, "halves")
    wide, other = _cast_or(a, x), _cast_or(a, _other_part(_in_halves(a), x1, x2))
    total = wide * twice_in_halves(a, cos) + other * twice_in_halves(a, sin)
    where = [2 * middle == x.shape[-1], to_the_end, _exact(x, again, wide)]
    return _rope(total, build(_turned, wide, cos, sin, tag("way")), where, wide)


def _holds_numbers_twice(match: Match, *names: str) -> bool:
    """Whether both halves of the constants are equal."""
    halves = [np.split(match[name].constant, 2, axis=-1) for name in names]
    return all(np.array_equal(first, second) for first, second in halves)


def _turned_by_tables(x: Value, cos: Value, sin: Value, way: str) -> Value:
    """The composite, with the first halves of both constants."""
    assert cos.constant is not None
    assert sin.constant is not None
    first, second = (np.split(numbers, 2, axis=-1)[0] for numbers in (cos.constant, sin.constant))
    return _turned(x, coreai.constant(first, cos.element_type), coreai.constant(second, sin.element_type), way)


_ANGLES = [[0.1, 0.2, 0.3, 0.4] * 2, [0.5, 0.6, 0.7, 0.8] * 2]
_COS, _SIN = ([[function(angle) for angle in row] for row in _ANGLES] for function in (math.cos, math.sin))


def _by_constants(torch: Any, x: Any) -> Any:
    return x * torch.tensor(_COS) + torch.cat([-x[..., 4:], x[..., :4]], -1) * torch.tensor(_SIN)


@rule(name="rope with constants", examples=[example("2x3x2x8xf32", program=_by_constants)])
def of_halves_with_constants(
    a: AtenSource, c: Composites, x: Capture, cos: Const, sin: Const, middle: Attr, end: Attr
) -> Rewrite:
    """x * cos + [-x2, x1] * sin, where both halves of the constants cos and sin are equal

    Exporters of a fixed number of positions compute the tables (`torch.onnx.export`).
    """
    x1, x2, to_the_end = _cut(a, x, (middle, middle), end, "halves")
    total = x * cos + _other_part(_in_halves(a), x1, x2) * sin
    twice = check("cosine and sine hold each number twice", lambda match: _holds_numbers_twice(match, "cos", "sin"))
    wide = [table.shape[-1] == x.shape[-1] for table in (cos, sin)]
    where = [2 * middle == x.shape[-1], to_the_end, *wide, twice]
    return _rope(total, build(_turned_by_tables, x, cos, sin, tag("way")), where, x)


@rule(name="rope with half tables", example=_HALVES)
def of_halves_with_half_tables(
    a: AtenSource, c: Composites, x: Capture, cos: Capture, sin: Capture, middle: Attr, end: Attr
) -> Rewrite:
    "[x1 * cos - x2 * sin, x2 * cos + x1 * sin], cos and sin as wide as a half (GPT-OSS); or the other way"
    x1, x2, to_the_end = _cut(a, x, (middle, middle), end, "halves")
    of_half = [2 * middle == x.shape[-1], cos.shape[-1] == middle, sin.shape[-1] == middle]
    total = _sums(_in_halves(a), x1, x2, cos, sin)
    return _rope(total, build(_turned, x, cos, sin, tag("way")), [*of_half, to_the_end], x)


@rule(name="rope of neighbours", example=_PAIRS)
def of_pairs(a: AtenSource, c: Composites, x: Capture, cos: Capture, sin: Capture, end: Attr, flat: Attr) -> Rewrite:
    """x * repeat(cos) + flatten([-x[1::2], x[::2]]) * repeat(sin) (Cohere, Helium, Ernie 4.5, GPT-J, GLM)

    The other way, and x of a half type, are as in `rope`.
    """
    again = _cast_or(a, x)
    even, odd, whole = _neighbours(a, again, end)
    wide, other = _cast_or(a, x), _cast_or(a, _other_part(_in_pairs(a, flat), even, odd))
    total = wide * twice_in_pairs(a, cos) + other * twice_in_pairs(a, sin)
    where = [*whole, _flattens_to(x, flat), 2 * cos.shape[-1] == x.shape[-1], _exact(x, again, wide)]
    return _rope(total, build(_turned, wide, cos, sin, tag("way"), interleaved=True), where, wide)


@rule(name="rope of neighbours with half tables", example=_PAIRS)
def of_pairs_with_half_tables(
    a: AtenSource, c: Composites, x: Capture, cos: Capture, sin: Capture, end: Attr, flat: Attr
) -> Rewrite:
    "flatten([x[::2] * cos - x[1::2] * sin, x[1::2] * cos + x[::2] * sin]) (lit-gpt, Llama 4); or the other way"
    even, odd, whole = _neighbours(a, x, end)
    # the view hides additional dimensions of the tables
    of_half = [_flattens_to(x, flat), *(2 * table.shape[-1] == x.shape[-1] for table in (cos, sin))]
    of_half += [table.rank <= x.rank for table in (cos, sin)]
    total = _sums(_in_pairs(a, flat), even, odd, cos, sin)
    return _rope(total, build(_turned, x, cos, sin, tag("way"), interleaved=True), [*whole, *of_half], x)


@rule(name="rope of neighbours to halves", example={k: v for k, v in _PAIRS.items() if k != "flat"})
def of_pairs_to_halves(a: AtenSource, c: Composites, x: Capture, cos: Capture, sin: Capture, end: Attr) -> Rewrite:
    """[x[::2] * cos - x[1::2] * sin, x[1::2] * cos + x[::2] * sin] (DeepSeek V3, Youtu); or the other way

    The neighbours are moved to halves first: the composite gives pairs as it takes them.
    """
    even, odd, whole = _neighbours(a, x, end)
    of_half = [2 * table.shape[-1] == x.shape[-1] for table in (cos, sin)]
    total = _sums(_in_halves(a), even, odd, cos, sin)
    return _rope(total, build(_turned, build(_joined, even, odd), cos, sin, tag("way")), [*whole, *of_half], x)


@rule(name="rope of some dimensions", example={
    "x": "2x4x3x12xf32", "cos": "2x1x3x4xf32", "sin": "2x1x3x4xf32", "interleaved": False,
    "dims": 8, "others": 4, "rest": _END,
})  # fmt: skip
def of_some_dimensions(
    a: AtenSource,
    c: Composites,
    x: Capture,
    cos: Capture,
    sin: Capture,
    interleaved: Attr,
    dims: Attr,
    others: Attr,
    rest: Attr,
) -> Rewrite:
    "[rope(x[..., :dims]), x[..., dims:]] (GPT-NeoX, Phi, StableLM, Persimmon, GPT-J, GLM; Phi-3 with fewer)"
    first, kept, to_the_end = _cut(a, x, (dims, others), rest, "rest")
    turned = a.rope(first, cos, sin, None, None, scale=1.0, base=10000.0, dims=None, interleaved=interleaved)
    made = c.rope(x, cos, sin, scale=1.0, base=10000.0, dims=dims, interleaved=interleaved)
    return _rope(a.cat([turned, kept], dim=LAST), made, [to_the_end, dims > 0], x)

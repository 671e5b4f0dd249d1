"""Rotary position embeddings as a composite.

A head's values are taken in pairs, and each pair is turned by an angle that depends on the position:
y1 = cos x1 - sin x2, y2 = sin x1 + cos x2 (Su et al. 2021, arXiv:2104.09864). The pairs are the two halves of the
head (Llama), or neighbours (GPT-J, `interleaved`); only the first `dims` values may be turned (GPT-NeoX).

Models keep the cosine and sine of each pair twice, as wide as the head. The composite takes them once, so these rules
ask for the repetition, which the normalize stage moves right before its use (`normalize/repeats.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from patcomp.authoring import AtenSource, Composites, Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Rewrite, any_of, check, composites, rule, tag
from patterns_catalog.lowering.shapes import slice_axis
from patterns_catalog.normalize.repeats import pairs_conditions, twice_in_halves, twice_in_pairs


@composites.define
@composite("rope", inputs=("input", "cos", "sin"), attributes=("scale", "base", "dims", "interleaved"))
def rope(
    c: Coreai, x: Value, cos: Value, sin: Value, *, scale: float, base: float, dims: int | None, interleaved: bool
) -> Value:
    """y1 = cos x1 - sin x2, y2 = sin x1 + cos x2 for the pairs of the last axis.

    `cos` and `sin` have a value for each pair. `scale` and `base` make them where they are not given; here they
    only stand in the declaration.
    """
    last = x.rank - 1
    width = x.shape[last]
    assert width is not None
    turned = width if dims is None else dims
    half = turned // 2
    if interleaved:
        first, second = (slice_axis(c, x, last, start, turned, 2) for start in (0, 1))
    else:
        first, second = slice_axis(c, x, last, 0, half), slice_axis(c, x, last, half, turned)
    y1 = c.broadcasting_sub(c.broadcasting_mul(cos, first), c.broadcasting_mul(sin, second))
    y2 = c.broadcasting_add(c.broadcasting_mul(sin, first), c.broadcasting_mul(cos, second))
    if interleaved:
        pairs = c.concat(x.rank, [c.expand_dims(y1, [x.rank]), c.expand_dims(y2, [x.rank])])
        parts = [c.reshape(pairs, [*y1.static_shape[:-1], turned])]
    else:
        parts = [y1, y2]
    if turned < width:
        parts.append(slice_axis(c, x, last, turned, width))
    return parts[0] if len(parts) == 1 else c.concat(last, parts)


def _last(axis: Any, x: Any) -> Any:
    """Whether an axis is the last one of a value."""
    return axis % x.rank == x.rank - 1


def _has_type_of(result: Any, x: Any) -> Any:
    """Cosine and sine broadcast to the input, never the input to them."""

    def same(match: Any) -> bool:
        return match.value_of(result).type == match.value_of(x).type

    return check("the result has the type of x", same)


def _negative(a: AtenSource, x: Any) -> Any:
    return any_of(-x, x * -1.0)


def _parts(a: AtenSource, x: Any, dim: Any, sizes: tuple[Any, Any], end: Any, name: str) -> tuple[Any, Any]:
    """The first values of an axis and the others, as slices or as the results of a split."""
    middle = sizes[0]
    parts = a.split_with_sizes(x, split_sizes=list(sizes), dim=dim)
    first = any_of(a.slice(x, dim=dim, start=0, end=middle, step=1), parts[0])
    second = any_of(
        a.slice(x, dim=dim, start=middle, end=end, step=1), parts[1], tag=name, tags=["slice", "split"]
    )  # fmt: skip
    return first, second


# ---- pairs of halves -------------------------------------------------------------------------------


def _whole_halves(
    a: AtenSource, x: Any, width: Any, cos: Any, sin: Any, axes: tuple[Any, ...], wide: Any = None, dtype: Any = None
) -> tuple[Any, list[Any]]:
    """x * [cos, cos] + [-x2, x1] * [sin, sin], and its conditions; `wide` is x cast to `dtype`, that of the tables."""
    dim, middle, end, join, axis = axes
    first, second = _parts(a, x, dim, (middle, middle), end, "halves")
    turned = a.cat([_negative(a, second), first], dim=join)
    if wide is not None:
        turned = a._to_copy(turned, dtype=dtype)
    total = (x if wide is None else wide) * twice_in_halves(a, cos, axis) + turned * twice_in_halves(a, sin, axis)
    return total, [*_halves(x, width, dim, middle, end, join), _last(axis, cos), _last(axis, sin)]


def _half_halves(a: AtenSource, x: Any, width: Any, cos: Any, sin: Any, axes: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """[x1 * cos - x2 * sin, x2 * cos + x1 * sin], and its conditions."""
    dim, middle, end, join = axes
    first, second = _parts(a, x, dim, (middle, middle), end, "halves")
    total = a.cat([first * cos - second * sin, second * cos + first * sin], dim=join)
    conditions = _halves(x, width, dim, middle, end, join)
    return total, [*conditions, cos.shape[-1] == middle, sin.shape[-1] == middle]


def _halves(x: Any, width: Any, dim: Any, middle: Any, end: Any, join: Any) -> list[Any]:
    to_the_end = (tag("halves") == "split") | (end >= width)
    return [_last(dim, x), _last(join, x), 2 * middle == width, to_the_end]


# ---- neighbouring pairs ----------------------------------------------------------------------------


def _whole_pairs(a: AtenSource, x: Any, width: Any, cos: Any, sin: Any, axes: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """x * repeat(cos) + flatten([-x[1::2], x[::2]]) * repeat(sin), and its conditions."""
    dim, end, place, join, flat, repeats = axes
    even, odd = _neighbours(a, x, dim, end)
    turned = _interleaved(a, _negative(a, odd), even, place, join, flat)
    names = ("cosine columns", "sine columns")
    wide_cos = twice_in_pairs(a, cos, *repeats, name=names[0])
    wide_sin = twice_in_pairs(a, sin, *repeats, name=names[1])
    conditions = _pairs(x, width, dim, end, place, join, flat, cos)
    return x * wide_cos + turned * wide_sin, [
        *conditions,
        *pairs_conditions(cos, *repeats, names=names),
        cos.shape == sin.shape,
    ]


def _half_pairs(a: AtenSource, x: Any, width: Any, cos: Any, sin: Any, axes: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """flatten([x[::2] * cos - x[1::2] * sin, x[1::2] * cos + x[::2] * sin]), and its conditions."""
    dim, end, place, join, flat = axes
    even, odd = _neighbours(a, x, dim, end)
    total = _interleaved(a, even * cos - odd * sin, odd * cos + even * sin, place, join, flat)
    return total, _pairs(x, width, dim, end, place, join, flat, cos)


def _neighbours(a: AtenSource, x: Any, dim: Any, end: Any) -> tuple[Any, Any]:
    """x[..., ::2] and x[..., 1::2]"""
    return tuple(a.slice(x, dim=dim, start=start, end=end, step=2) for start in (0, 1))  # type: ignore[return-value]


def _interleaved(a: AtenSource, first: Any, second: Any, place: Any, join: Any, flat: Any) -> Any:
    """stack([first, second], -1).flatten(-2)"""
    columns = [a.unsqueeze(value, dim=place) for value in (first, second)]
    return a.view(a.cat(columns, dim=join), size=flat)


def _pairs(x: Any, width: Any, dim: Any, end: Any, place: Any, join: Any, flat: Any, cos: Any) -> list[Any]:
    stacked_last = [place % (x.rank + 1) == x.rank, join % (x.rank + 1) == x.rank, flat == x.shape]
    return [_last(dim, x), end >= width, width % 2 == 0, *stacked_last, 2 * cos.shape[-1] == width]


# ---- the rules -------------------------------------------------------------------------------------

_END = 2**63 - 1
_HALVES = {"x": "2x4x3x8xf32", "dim": 3, "middle": 4, "end": _END, "join": -1}
_PAIRS = {"x": "2x4x3x8xf32", "dim": 3, "end": _END, "place": -1, "join": -1, "flat": [2, 4, 3, 8]}
_REPEATS = {"column": 4, "size": [2, 1, 3, 4, 2], "axis": -1, "table": [2, 1, 3, 8]}
_TABLES = {"cos": "2x1x3x4xf32", "sin": "2x1x3x4xf32"}
_SOME = {"x": "2x4x3x12xf32", "part": -1, "dims": 8, "others": 4, "rest": _END, "outer": -1}


def _some(
    a: AtenSource, x: Any, axes: tuple[Any, ...], formula: Callable[[Any], tuple[Any, list[Any]]]
) -> tuple[Any, Any]:
    """[the formula on x[..., :dims], x[..., dims:]], and its conditions."""
    part, dims, others, rest, outer = axes
    turned, kept = _parts(a, x, part, (dims, others), rest, "rest")
    total, conditions = formula(turned)
    to_the_end = (tag("rest") == "split") | (rest >= x.shape[-1])
    return a.cat([total, kept], dim=outer), [*conditions, _last(part, x), _last(outer, x), to_the_end]


def _rope(
    c: Composites, formula: tuple[Any, list[Any]], x: Any, cos: Any, sin: Any, dims: Any, interleaved: bool
) -> Rewrite:
    total, conditions = formula
    return Rewrite(
        total,
        to=c.rope(x, cos, sin, scale=1.0, base=10000.0, dims=dims, interleaved=interleaved),
        where=[*conditions, _has_type_of(total, x)],
    )


@rule(name="rope", example=_HALVES | _TABLES | {"axis": -1})
def of_halves(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, middle: Attr, end: Attr, join: Attr, axis: Attr
) -> Rewrite:
    "x * [cos, cos] + [-x2, x1] * [sin, sin] (Llama, Mistral, Qwen, Gemma, OLMo, Mixtral; Phi-3 of whole heads)"
    formula = _whole_halves(a, x, x.shape[-1], cos, sin, (dim, middle, end, join, axis))
    return _rope(c, formula, x, cos, sin, None, False)


@rule(
    name="rope in float32",
    example=_HALVES | _TABLES | {"axis": -1, "x": "2x4x3x8xf16", "dtype": "f32"},
)
def of_halves_in_float32(
    a: AtenSource,
    c: Composites,
    x: Any,
    cos: Any,
    sin: Any,
    dim: Attr,
    middle: Attr,
    end: Attr,
    join: Attr,
    axis: Attr,
    dtype: Attr,
) -> Rewrite:
    """x * [cos, cos] + [-x2, x1] * [sin, sin] of a half type with tables in float32 (OLMo 2)

    The promotion of each product casts x and [-x2, x1] on their own; both casts are exact.
    """
    wide = a._to_copy(x, dtype=dtype)
    total, conditions = _whole_halves(a, x, x.shape[-1], cos, sin, (dim, middle, end, join, axis), wide, dtype)
    return Rewrite(
        total,
        to=c.rope(wide, cos, sin, scale=1.0, base=10000.0, dims=None, interleaved=False),
        where=[*conditions, x.dtype.is_in("f16", "bf16"), wide.dtype == "f32", _has_type_of(total, wide)],
    )


@rule(name="rope of some dimensions", example=_HALVES | _TABLES | {"axis": -1} | _SOME)
def of_some_halves(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, middle: Attr, end: Attr, join: Attr,
    axis: Attr, part: Attr, dims: Attr, others: Attr, rest: Attr, outer: Attr,
) -> Rewrite:  # fmt: skip
    "[rope of x[..., :dims], x[..., dims:]] (GPT-NeoX, Phi, StableLM, Persimmon; Phi-3 with partial_rotary_factor)"
    formula = _some(
        a, x, (part, dims, others, rest, outer),
        lambda turned: _whole_halves(a, turned, dims, cos, sin, (dim, middle, end, join, axis)),
    )  # fmt: skip
    return _rope(c, formula, x, cos, sin, dims, False)


@rule(name="rope with half tables", example=_HALVES | _TABLES)
def of_halves_with_half_tables(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, middle: Attr, end: Attr, join: Attr
) -> Rewrite:
    "[x1 * cos - x2 * sin, x2 * cos + x1 * sin], cos and sin as wide as a half (GPT-OSS)"
    formula = _half_halves(a, x, x.shape[-1], cos, sin, (dim, middle, end, join))
    return _rope(c, formula, x, cos, sin, None, False)


@rule(name="rope with half tables of some dimensions", example=_HALVES | _TABLES | _SOME)
def of_some_halves_with_half_tables(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, middle: Attr, end: Attr, join: Attr,
    part: Attr, dims: Attr, others: Attr, rest: Attr, outer: Attr,
) -> Rewrite:  # fmt: skip
    "[rope of x[..., :dims], x[..., dims:]] with cos and sin as wide as half of dims"
    formula = _some(
        a, x, (part, dims, others, rest, outer),
        lambda turned: _half_halves(a, turned, dims, cos, sin, (dim, middle, end, join)),
    )  # fmt: skip
    return _rope(c, formula, x, cos, sin, dims, False)


@rule(name="rope of neighbours", example=_PAIRS | _TABLES | _REPEATS)
def of_pairs(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, end: Attr, place: Attr, join: Attr, flat: Attr,
    column: Attr, size: Attr, axis: Attr, table: Attr,
) -> Rewrite:  # fmt: skip
    "x * repeat(cos) + flatten([-x[1::2], x[::2]]) * repeat(sin) (Cohere, Helium, Ernie 4.5)"
    formula = _whole_pairs(a, x, x.shape[-1], cos, sin, (dim, end, place, join, flat, (column, size, axis, table)))
    return _rope(c, formula, x, cos, sin, None, True)


@rule(name="rope of neighbours of some dimensions", example=_PAIRS | _TABLES | _REPEATS | _SOME)
def of_some_pairs(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, end: Attr, place: Attr, join: Attr, flat: Attr,
    column: Attr, size: Attr, axis: Attr, table: Attr, part: Attr, dims: Attr, others: Attr, rest: Attr, outer: Attr,
) -> Rewrite:  # fmt: skip
    "[rope of neighbours of x[..., :dims], x[..., dims:]] (GPT-J, GLM)"
    axes = (dim, end, place, join, flat, (column, size, axis, table))
    formula = _some(
        a, x, (part, dims, others, rest, outer), lambda turned: _whole_pairs(a, turned, dims, cos, sin, axes)
    )  # fmt: skip
    return _rope(c, formula, x, cos, sin, dims, True)


@rule(name="rope of neighbours with half tables", example=_PAIRS | _TABLES)
def of_pairs_with_half_tables(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, end: Attr, place: Attr, join: Attr, flat: Attr
) -> Rewrite:
    "flatten([x[::2] * cos - x[1::2] * sin, x[1::2] * cos + x[::2] * sin]) (lit-gpt's and others' own models)"
    formula = _half_pairs(a, x, x.shape[-1], cos, sin, (dim, end, place, join, flat))
    return _rope(c, formula, x, cos, sin, None, True)


@rule(name="rope of neighbours with half tables of some dimensions", example=_PAIRS | _TABLES | _SOME)
def of_some_pairs_with_half_tables(
    a: AtenSource, c: Composites, x: Any, cos: Any, sin: Any, dim: Attr, end: Attr, place: Attr, join: Attr, flat: Attr,
    part: Attr, dims: Attr, others: Attr, rest: Attr, outer: Attr,
) -> Rewrite:  # fmt: skip
    "[rope of neighbours of x[..., :dims], x[..., dims:]] with a cosine for each pair"
    formula = _some(
        a, x, (part, dims, others, rest, outer),
        lambda turned: _half_pairs(a, turned, dims, cos, sin, (dim, end, place, join, flat)),
    )  # fmt: skip
    return _rope(c, formula, x, cos, sin, dims, True)

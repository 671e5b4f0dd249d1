"""Rotary position embeddings as a composite.

A head's values are taken in pairs, and each pair is turned by an angle that depends on the position:
y1 = cos x1 - sin x2, y2 = sin x1 + cos x2 (Su et al. 2021, arXiv:2104.09864). The pairs are the two halves of the
head (Llama), or neighbours (GPT-J, `interleaved`); only the first `dims` values may be turned (GPT-NeoX).

Models keep the cosine and sine of each pair twice, as wide as the head. The composite takes them once, so these rules
ask for the repetition, which the normalize stage moves right before its use (`normalize/repeats.py`).
"""

from __future__ import annotations

from typing import Any

from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Rewrite, any_of, check, composites, rule, tag
from patterns_catalog.lowering.shapes import slice_axis
from patterns_catalog.normalize.repeats import pairs_conditions, twice_in_halves, twice_in_pairs


@composites.define
@composite("rope", inputs=("input", "cos", "sin"), attributes=("scale", "base", "dims", "interleaved"))
def rope(
    c: Any, x: Value, cos: Value, sin: Value, *, scale: float, base: float, dims: int | None, interleaved: bool
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


def _keeps_type(result: Any) -> Any:
    """Cosine and sine broadcast to the input, never the input to them."""
    return check("the result has the type of x", lambda m: m.value_of(result).type == m["x"].type)


def _negative(a: Any, x: Any) -> Any:
    return any_of(-x, x * -1.0)


def _parts(a: Any, x: Any, dim: Any, sizes: tuple[Any, Any], end: Any, name: str) -> tuple[Any, Any]:
    """The first values of an axis and the others, as slices or as the results of a split."""
    middle = sizes[0]
    parts = a.split_with_sizes(x, split_sizes=list(sizes), dim=dim)
    first = any_of(a.slice(x, dim=dim, start=0, end=middle, step=1), parts[0])
    second = any_of(
        a.slice(x, dim=dim, start=middle, end=end, step=1), parts[1], tag=name, tags=["slice", "split"]
    )  # fmt: skip
    return first, second


# ---- pairs of halves -------------------------------------------------------------------------------


def _whole_halves(a: Any, x: Any, width: Any, cos: Any, sin: Any, axes: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """x * [cos, cos] + [-x2, x1] * [sin, sin], and its conditions."""
    dim, middle, end, join, axis = axes
    first, second = _parts(a, x, dim, (middle, middle), end, "halves")
    turned = a.cat([_negative(a, second), first], dim=join)
    total = x * twice_in_halves(a, cos, axis) + turned * twice_in_halves(a, sin, axis)
    return total, [*_halves(x, width, dim, middle, end, join), _last(axis, cos), _last(axis, sin)]


def _half_halves(a: Any, x: Any, width: Any, cos: Any, sin: Any, axes: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """[x1 * cos - x2 * sin, x2 * cos + x1 * sin], and its conditions."""
    dim, middle, end, join = axes
    first, second = _parts(a, x, dim, (middle, middle), end, "halves")
    total = a.cat([first * cos - second * sin, second * cos + first * sin], dim=join)
    conditions = _halves(x, width, dim, middle, end, join)
    return total, [*conditions, cos.shape[-1] == middle, sin.shape[-1] == middle]


def _halves(x: Any, width: Any, dim: Any, middle: Any, end: Any, join: Any) -> list[Any]:
    to_the_end = (tag("halves") == "split") | (end >= width)
    return [_last(dim, x), _last(join, x), 2 * middle == width, to_the_end]


_HALVES = {"x": "2x4x3x8xf32", "dim": 3, "middle": 4, "end": 2**63 - 1, "join": -1}
_TABLES = {"cos": "2x1x3x4xf32", "sin": "2x1x3x4xf32"}


@rule(name="rope", example=_HALVES | _TABLES | {"axis": -1})
def rotated_half(
    a: Any, c: Any, x: Any, cos: Any, sin: Any, dim: Attr, middle: Attr, end: Attr, join: Attr, axis: Attr
) -> Rewrite:
    "x * [cos, cos] + [-x2, x1] * [sin, sin] (Llama, Mistral, Qwen, Gemma, OLMo; Phi-3 without `dims`)"
    width = x.shape[-1]
    total, conditions = _whole_halves(a, x, width, cos, sin, (dim, middle, end, join, axis))
    return Rewrite(
        total,
        to=c.rope(x, cos, sin, scale=1.0, base=10000.0, dims=None, interleaved=False),
        where=[*conditions, _keeps_type(total)],
    )

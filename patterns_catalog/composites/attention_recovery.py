"""Attention that a model writes out as products and a softmax, found and made one op again.

The rule's target is PyTorch's own op, `aten.scaled_dot_product_attention`, of which `attention.py` makes the composite.
So there is one place that says what the composite looks like, whichever form a model was exported in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from patcomp.ir import aten, coreai
from patcomp.ir.extents import elements, extent, extents, extents_of
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.types import element_name, element_type, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import ANY, Attr, CompositeTable, Const, Rewrite, any_of, check, compute, rule, tag
from patcomp.patterns.match import Match
from patterns_catalog.sizes import Size
from patterns_catalog.views import permuted, viewed

_TABLE = CompositeTable("attention")

_FACTORS = ("query factor", "key factor", "column factor", "score factor")
"""Where the scores may be scaled; columns are the permuted keys."""

_LARGEST_FILL = -1e4
"""Numbers up to this one, put in place of a score, leave no weight: exp(-1e4) is zero, whatever the other scores."""

_PRECISION = {"f32": 1e-6, "f16": 1e-3, "bf16": 5e-3}
"""How far two rounded factors of each type may be from the number that they stand for."""

_LOWEST = {"bf16": float.fromhex("-0x1.fep127"), "f32": -float.fromhex("0x1.fffffep127")}


# ---- the mask ------------------------------------------------------------------------------------


def _where(condition: Value, yes: Value, no: Value) -> Value:
    shape = broadcast_shapes(condition.shape, yes.shape, no.shape)
    return aten.build("aten.where.self", tensor(shape, yes.element_type), condition=condition, self=yes, other=no)


def _number(value: float, like: Value) -> Value:
    return coreai.constant(value, like.element_type)


def _element_of_mask(query: Value, fills: Iterable[Value | None]) -> Attribute:
    """The element type of a mask of numbers: the query's, where that has a number in which any score is lost.

    Scores of float16 are computed in float32, where its lowest number is not low enough.
    """
    finite = any(fill is not None and _number_of(fill) > -math.inf for fill in fills)
    return element_type("f32") if finite and query.dtype == "f16" else query.element_type


def _added(mask: Value | None, bias: Value, element: Attribute) -> Value:
    """The mask after a bias was added to the scores."""
    if bias.element_type != element:
        bias = aten.build("aten._to_copy", tensor(bias.shape, element), self=bias, dtype=element)
    if mask is None:
        return bias
    if mask.dtype == "i1":
        return _where(mask, bias, _number(-math.inf, bias))
    shape = broadcast_shapes(mask.shape, bias.shape)
    return aten.build("aten.add.Tensor", tensor(shape, mask.element_type), self=mask, other=bias)


def _replaced(mask: Value | None, keep: Value, fill: float, element: Attribute) -> Value:
    """The mask after scores were replaced by a number where `keep` is false.

    With minus infinity it is a bool mask, and a row of which nothing is kept gives zeros, as in PyTorch's op, where
    the model gives NaN. Rows filled with a finite number have equal weights; adding the lowest number of the type,
    in which any score is lost by rounding, gives the same.
    """
    if fill == -math.inf:
        if mask is None:
            return keep
        if mask.dtype != "i1":
            return _where(keep, mask, _number(fill, mask))
        shape = broadcast_shapes(mask.shape, keep.shape)
        return aten.build("aten.logical_and", tensor(shape, "i1"), self=mask, other=keep)
    zero = coreai.constant(0.0, element)
    if mask is None or mask.dtype == "i1":
        mask = zero if mask is None else _where(mask, zero, coreai.constant(-math.inf, element))
    return _where(keep, mask, coreai.constant(_LOWEST[element_name(element)], element))


def _negated(mask: Value) -> Value:
    return aten.build("aten.logical_not", mask.type, self=mask)


# ---- the op --------------------------------------------------------------------------------------


@_TABLE.define
def attention(
    query: Value, key: Value, value: Value, *stages: Value | None,
    key_order: list[int], column_size: list[Size] | None, value_size: list[Size] | None, row_size: list[Size] | None,
    scale: float | None, result_types: list[Attribute],
) -> Value:  # fmt: skip
    """The op of a match.

    Args:
        query, key, value: its inputs; the key in the order in which the model permutes it.
        stages: what each stage of masking adds, keeps or drops, and the number that it fills in.
        key_order: the permutation that makes the key the right factor of the scores.
        column_size, value_size, row_size: the shapes of keys, values and weights with batch and heads as one axis.
        scale: the factor of the scores, None for 1 / sqrt(width).
        result_types: the type of the result.
    """
    mask, element = None, _element_of_mask(query, (stages[3], stages[7]))
    for bias, keep, drop, fill in (stages[:4], stages[4:]):
        if bias is not None:
            mask = _added(mask, bias, element)
        elif (kept := keep if drop is None else _negated(drop)) is not None:
            mask = _replaced(mask, kept, _number_of(fill), element)
    key = permuted(key, [*key_order[:-2], key_order[-1], key_order[-2]])
    if column_size is not None and key.rank > query.rank:
        key = _joined(key, [column_size[0], column_size[2], column_size[1]])
    if value_size is not None and value.rank > query.rank:
        value = _joined(value, value_size)
    width = value.shape[-1]
    assert width is not None
    result = aten.build(
        "aten.scaled_dot_product_attention", tensor((*query.shape[:-1], width), query.element_type),
        query=query, key=key, value=value, attn_mask=mask, scale=scale, enable_gqa=key.shape[-3] != query.shape[-3],
    )  # fmt: skip
    return result if row_size is None else viewed(result, [*row_size[:2], width])


def _number_of(constant: Value | None) -> float:
    """The number that all elements of a matched constant equal."""
    assert constant is not None
    assert constant.constant is not None
    return float(constant.constant.reshape(-1)[0])


def _joined(x: Value, size: list[Size]) -> Value:
    """Keys or values with batch and heads as one axis, from the shape in which they have been repeated."""
    rows = _rows(list(x.shape[:-2]))
    return viewed(x, [size[0] if rows is None else rows, *size[1:]])


def _scale(match: Match) -> float | None:
    """The product of all factors, None where it is 1 / sqrt(width), the default."""
    product = 1.0
    for name in _FACTORS:
        taken = match.tags.get(name)
        if taken != "none":
            factor = _number_of(match[name.replace(" ", "_")])
            product = product * factor if taken == "times" else product / factor
    default = 1.0 / math.sqrt(match["query"].shape[-1])
    # the square root of the default may stand on both sides, each rounded to the type of the model
    close = math.isclose(product, default, rel_tol=_PRECISION[match["query"].dtype])
    return None if close else product


def _fits(match: Match, *nodes: Any) -> bool:
    """Whether the shapes of scores, logits and result are those of attention: only heads and masks broadcast.

    Dynamic dimensions that meet in a product or a sum are equal, or export would not have taken the program.
    """
    query, key, value = match["query"], match["key"], match["value"]
    shapes = [match[node].shape for node in nodes]
    if len(match["key_order"]) != key.rank or min(query.rank, key.rank, value.rank) < 3:
        return False
    *batch, heads, length, width = query.shape
    *key_batch, key_width, key_length = (key.shape[axis] for axis in match["key_order"])
    *value_batch, value_length, value_width = value.shape
    if width is None or value_width is None or (query.rank > 4 and not query.is_static) or not _joins(match):
        return False
    joined = match.tags["rows"] == "joined"
    if match.tags["columns"] == "joined":
        key_batch = [_rows(key_batch)]
    if match.tags["values"] == "joined" and not joined:
        value_batch = [_rows(value_batch)]
    return (
        [*batch, key_batch[-1]] == key_batch == value_batch
        and _serve(heads, key_batch[-1], match)
        and (key_width, key_length) == (width, value_length)
        and shapes[:2] == [(*batch, heads, length, key_length)] * 2
        and (shapes[2][1:] == (length, value_width) if joined else shapes[2] == (*batch, heads, length, value_width))
    )


def _rows(batch: list[int | None]) -> int | None:
    """The size of joined axes."""
    return None if None in batch else math.prod(number or 0 for number in batch)


def _joins(match: Match) -> bool:
    """Whether the views of keys, values and weights have batch and heads of the query as one axis."""
    query, value = extents(match["query"]), extents(match["value"])
    key = [extent(match["key"], axis) for axis in match["key_order"]]
    rows = elements(query[:-2])
    joined = {name: match.tags[name] == "joined" for name in ("columns", "values", "rows")}
    return (
        (not joined["columns"] or extents_of(match["column_size"]) == [rows, *key[-2:]])
        and (not joined["values"] or extents_of(match["value_size"]) == [rows, *value[-2:]])
        and (not joined["rows"] or extents_of(match["row_size"]) == [rows, query[-2], key[-1]])
        and (not joined["rows"] or value[:-3] == query[:-3])
    )


def _serve(heads: int | None, own: int | None, match: Match) -> bool:
    """Whether each head of keys and values serves as many heads of queries; with a dynamic number, one."""
    if heads is None or own is None:
        plain = match.tags["key heads"] == match.tags["value heads"] == "own"
        return heads is own and plain and match["query"].rank == 3
    return own > 0 and heads % own == 0


# ---- the pattern ---------------------------------------------------------------------------------


def _product(a: Any, x: Any, y: Any) -> Any:
    return any_of(a.matmul(x, y), a.bmm(x, y))


def _cast(a: Any, x: Any, name: str) -> Any:
    return any_of(a._to_copy(x, dtype=ANY), x, tag=name, tags=("cast", "own"))


def _scaled(x: Any, factor: Any, name: str) -> Any:
    return any_of(x * factor, x / factor, x, tag=name, tags=("times", "over", "none"))


def _masked(a: Any, x: Any, bias: Any, keep: Any, drop: Any, fill: Any, name: str) -> Any:
    """One stage of masking, with the condition of `where` either way round."""
    kept, dropped = a.op("where.self", keep, x, fill), a.op("where.self", drop, fill, x)
    return any_of(x + bias, kept, dropped, x, tag=name, tags=("added", "kept", "dropped", "none"))


def _safe(a: Any, logits: Any, softmax: Any, axis: Any) -> Any:
    """The softmax, zero in rows that are all minus infinity: PyTorch's decomposition of its own op has that."""
    some = a.op("any.dim", a.logical_not(a.op("eq.Tensor", logits, -math.inf)), dim=axis, keepdim=True)
    zeros = any_of(a.full_like(softmax, 0, dtype=ANY), 0.0)
    return any_of(
        a.op("where.self", a.logical_not(some), zeros, softmax), softmax, tag="empty rows", tags=("zero", "any")
    )


def _heads(a: Any, x: Any, repeats: Any, axis: Any, size: Any, name: str) -> Any:
    """Keys or values, repeated for each group of queries or not; others may use the repeated ones."""
    repeated = a.op("repeat_interleave.self_int", x, repeats=repeats, dim=axis, output_size=ANY)
    expanded = a.expand(x, size=size, implicit=ANY)
    return any_of(a.escaping(repeated), a.escaping(expanded), x, tag=name, tags=("repeated", "expanded", "own"))


@rule(name="attention written out", target=_TABLE, example={
    "query": "8x3x8xf32", "key": "4x5x8xf32", "value": "4x5x8xf32", "key_order": [0, 2, 1],
    "repeats": 2, "key_axis": 0, "value_axis": 0, "axis": -1, "safe_axis": -1,
    "key_heads_size": [8, 5, 8], "value_heads_size": [8, 5, 8],
    "column_size": [8, 8, 5], "value_size": [8, 5, 8], "row_size": [8, 3, 5],
    "query_factor": 0.5, "key_factor": 0.7, "column_factor": 0.3, "score_factor": 4.0,
    "bias": "3x5xf32", "keep": "3x5xi1", "drop": "3x5xi1", "fill": -1e9,
    "outer_bias": "1x3x5xf32", "outer_keep": "3x5xi1", "outer_drop": "3x5xi1", "outer_fill": -1e9,
})  # fmt: skip
def attention_written_out(
    a: Any, c: Any, query: Any, key: Any, value: Any, key_order: Attr,
    repeats: Attr, key_axis: Attr, value_axis: Attr, axis: Attr, safe_axis: Attr,
    key_heads_size: Attr, value_heads_size: Attr, column_size: Attr, value_size: Attr, row_size: Attr,
    query_factor: Const, key_factor: Const, column_factor: Const, score_factor: Const,
    bias: Any, keep: Any, drop: Any, fill: Const, outer_bias: Any, outer_keep: Any, outer_drop: Any, outer_fill: Const,
) -> Rewrite:  # fmt: skip
    """softmax(scale * query @ key^T + mask, -1) @ value

    The eager attention of transformers (BERT, GPT-2, Llama, T5, ViT, OPT, BART), PyTorch's own decomposition of its
    op, `nn.MultiheadAttention` with weights, and nets that write it by hand. Factors may stand at the query, the key
    and the scores; masks are added or put in place of scores, twice at most; the softmax may be computed in float32;
    heads of keys and values may be repeated for groups of queries. A mask that is added before the scores are scaled,
    a function in between (the soft cap of Gemma 2) or weights that are used elsewhere do not match.
    """
    factors = (query_factor, key_factor, column_factor, score_factor)
    keys = _heads(a, key, repeats, key_axis, key_heads_size, "key heads")
    columns = _scaled(a.permute(_scaled(keys, key_factor, "key factor"), key_order), column_factor, "column factor")
    columns = any_of(a.view(columns, size=column_size), columns, tag="columns", tags=("joined", "own"))
    scores = _product(a, _scaled(query, query_factor, "query factor"), columns)
    wide_scores = _cast(a, scores, "scores")
    wide_scaled = _cast(a, _scaled(wide_scores, score_factor, "score factor"), "scaled scores")
    inner = _masked(a, wide_scaled, bias, keep, drop, fill, "mask")
    outer = _masked(a, inner, outer_bias, outer_keep, outer_drop, outer_fill, "outer mask")
    logits = _cast(a, outer, "logits")
    softmax = a._softmax(logits, dim=axis, half_to_float=False)
    weights = _cast(a, _safe(a, logits, softmax, safe_axis), "weights")
    values = _heads(a, value, repeats, value_axis, value_heads_size, "value heads")
    values = any_of(a.view(values, size=value_size), values, tag="values", tags=("joined", "own"))
    rows = any_of(a.view(weights, size=row_size), weights, tag="rows", tags=("joined", "own"))
    result = _product(a, rows, values)
    last = query.rank - 1
    return Rewrite(
        result,
        to=c.attention(
            query, key, value, bias, keep, drop, fill, outer_bias, outer_keep, outer_drop, outer_fill,
            key_order=key_order, column_size=column_size, value_size=value_size, row_size=row_size,
            scale=compute("the product of all factors", _scale),
        ),
        where=[
            query.dtype.is_in(*_PRECISION),
            key.dtype == query.dtype,
            value.dtype == query.dtype,
            weights.dtype == query.dtype,
            *(x.dtype.is_in(query.dtype, "f32") for x in (wide_scores, wide_scaled, logits)),
            axis.is_in(-1, last),
            (tag("empty rows") == "any") | safe_axis.is_in(-1, last),
            (tag("key heads") != "repeated") | (key_axis == key_order[-3]),
            (tag("value heads") != "repeated") | (value_axis == value.rank - 3),
            *((tag(name) == "none") | (factor.value != 0) for name, factor in zip(_FACTORS, factors, strict=True)),
            tag("mask").is_in("none", "added") | (fill.value <= _LARGEST_FILL),
            tag("outer mask").is_in("none", "added") | (outer_fill.value <= _LARGEST_FILL),
            check("the shapes are those of attention", lambda match: _fits(match, scores, logits, result)),
        ],
    )  # fmt: skip

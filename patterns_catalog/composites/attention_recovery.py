"""Attention that a model writes out as products and a softmax, found and made the composite.

`attention_masks.py` says what becomes of its masks, `attention.py` what the composite looks like.
"""

from __future__ import annotations

import math
from typing import Any

from patcomp.authoring import AtenSource, Targets, coreai
from patcomp.ir.extents import elements, extent, extents, extents_of
from patcomp.ir.types import element_type
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import ANY, LAST, Attr, Const, FunctionTable, Rewrite, any_of, check, compute, rule, tag
from patcomp.patterns.match import Match
from patterns_catalog.assumptions import MASKED_ROWS_ARE_NOT_READ
from patterns_catalog.composites.attention import attention_of_any_rank
from patterns_catalog.composites.attention_masks import (
    LARGEST,
    Stages,
    mask_of,
    masks_of,
    no_score_is_below,
    number_of,
    rows_keep_their_weights,
)
from patterns_catalog.sizes import Size
from patterns_catalog.views import permuted, viewed

_TABLE = FunctionTable("attention")

_FACTORS = ("query factor", "key factor", "column factor", "score factor")
"""Where the scores may be scaled; columns are the permuted keys."""

_LARGEST_FILL = -9984.0
"""Numbers up to this one, -1e4 as bfloat16, hide a key when they are put in place of its score."""

_PRECISION = {"f32": 1e-6, "f16": 1e-3, "bf16": 5e-3}
"""How far two rounded factors of each type may be from the number that they stand for."""


# ---- the composite -------------------------------------------------------------------------------


@_TABLE.define
def attention(
    query: Value, key: Value, value: Value, sinks: Value | None, *,
    masks: Stages, mask_element: str, empty_rows: str, key_order: list[int], column_size: list[Size] | None,
    value_size: list[Size] | None, row_size: list[Size] | None, scale: float | None, result_types: list[Attribute],
) -> Value:  # fmt: skip
    """The composite of a match.

    Args:
        query, key, value: its inputs; the key in the order in which the model permutes it.
        sinks: the score of the sink of each head, with further axes of size 1.
        masks: what is done to the scores.
        mask_element: the type in which it is done.
        empty_rows: "zero" where the model gives zero in rows that are all minus infinity.
        key_order: the permutation that makes the key the right factor of the scores.
        column_size, value_size, row_size: the shapes of keys, values and weights with batch and heads as one axis.
        scale: the factor of the scores, None for 1 / sqrt(width).
        result_types: the type of the result.
    """
    mask = mask_of(masks, element_type(mask_element))
    key = permuted(key, [*key_order[:-2], key_order[-1], key_order[-2]])
    if column_size is not None and key.rank > query.rank:
        key = _joined(key, [column_size[0], column_size[2], column_size[1]])
    if value_size is not None and value.rank > query.rank:
        value = _joined(value, value_size)
    width = value.shape[-1]
    assert width is not None
    result = attention_of_any_rank(
        coreai, query, key, value, mask, None if sinks is None else viewed(sinks, [_heads_of_sinks(sinks)]),
        scale=scale, by_heads=sinks is not None or key.shape[-3] != query.shape[-3], written_out=empty_rows != "zero",
    )  # fmt: skip
    return result if row_size is None else viewed(result, [*row_size[:2], width])


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
            factor = number_of(match[name.replace(" ", "_")])
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
    if width is None or value_width is None or not _joins(match):
        return False
    if query.rank > 4 and not all(x.is_static for x in (query, key, value)):
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


def _heads_of_sinks(sinks: Value) -> int:
    """How many heads have a sink; 0 where the value is not one number for each head."""
    *leading, heads, rows, keys = (1, 1, 1, *sinks.shape)
    return heads if heads is not None and (rows, keys) == (1, 1) and set(leading) == {1} else 0


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


def _largest_score(match: Match, wide_scores: Any) -> float:
    """The largest magnitude of a finite score before it is masked.

    Args:
        wide_scores: the node of the scores, in the type in which they are scaled.
    """
    element, how = match["query"].dtype, match.tags["score factor"]
    if match[wide_scores].dtype == element or how == "none":
        return LARGEST[element]
    factor = abs(number_of(match["score_factor"]))
    return LARGEST[element] * (factor if how == "times" else 1 / factor)


def _has_sinks(match: Match, scores: Any, column: Any) -> bool:
    """Whether the column that is appended to the scores and dropped from the weights is a sink of each head."""
    if match.tags["softmax"] != "with sinks":
        return True
    if match[column].shape[-1] != 1:
        return False
    rank, keys = match[scores].rank, match[scores].shape[-1]
    return (
        match["sinks"].rank <= rank
        and _heads_of_sinks(match["sinks"]) == match["query"].shape[-3]
        and (match["drop_end"] == -1 or (keys is not None and match["drop_end"] == keys))
    )


# ---- the pattern ---------------------------------------------------------------------------------


def _product(a: AtenSource, x: Any, y: Any) -> Any:
    return any_of(a.matmul(x, y), a.bmm(x, y))


def _cast(a: AtenSource, x: Any, name: str) -> Any:
    return any_of(a._to_copy(x, dtype=ANY), x, tag=name, tags=("cast", "own"))


def _scaled(x: Any, factor: Any, name: str) -> Any:
    return any_of(x * factor, x / factor, x, tag=name, tags=("times", "over", "none"))


def _masked(a: AtenSource, x: Any, bias: Any, keep: Any, drop: Any, fill: Any, name: str) -> Any:
    """One stage of masking, with the condition of `where` either way round."""
    kept, dropped = a.op("where.self", keep, x, fill), a.op("where.self", drop, fill, x)
    return any_of(x + bias, kept, dropped, x, tag=name, tags=("added", "kept", "dropped", "none"))


def _safe(a: AtenSource, logits: Any, softmax: Any) -> Any:
    """The softmax, zero in rows that are all minus infinity: PyTorch's decomposition of its own op has that."""
    some = a.op("any.dim", a.logical_not(a.op("eq.Tensor", logits, -math.inf)), dim=LAST, keepdim=True)
    zeros = any_of(a.full_like(softmax, 0, dtype=ANY), 0.0)
    return any_of(
        a.op("where.self", a.logical_not(some), zeros, softmax), softmax, tag="empty rows", tags=("zero", "any")
    )


def _heads(a: AtenSource, x: Any, repeats: Any, axis: Any, size: Any, name: str) -> Any:
    """Keys or values, repeated for each group of queries or not; others may use the repeated ones."""
    repeated = a.op("repeat_interleave.self_int", x, repeats=repeats, dim=axis, output_size=ANY)
    expanded = a.expand(x, size=size, implicit=ANY)
    return any_of(a.escaping(repeated), a.escaping(expanded), x, tag=name, tags=("repeated", "expanded", "own"))


def _less_the_largest(a: AtenSource, logits: Any) -> Any:
    """The logits less the largest one of each row, which a softmax subtracts in any case."""
    return logits - any_of(a.op("max.dim", logits, dim=LAST, keepdim=True)[0], a.amax(logits, dim=[LAST], keepdim=True))


@rule(name="attention written out", target=_TABLE, example={
    "query": "8x3x8xf32", "key": "4x5x8xf32", "value": "4x5x8xf32", "key_order": [0, 2, 1],
    "repeats": 2, "key_axis": 0, "value_axis": 0,
    "key_heads_size": [8, 5, 8], "value_heads_size": [8, 5, 8],
    "column_size": [8, 8, 5], "value_size": [8, 5, 8], "row_size": [8, 3, 5],
    "query_factor": 0.5, "key_factor": 0.7, "column_factor": 0.3, "score_factor": 4.0,
    "bias": "3x5xf32", "keep": "3x5xi1", "drop": "3x5xi1", "fill": -math.inf,
    "outer_bias": "1x3x5xf32", "outer_keep": "3x5xi1", "outer_drop": "3x5xi1", "outer_fill": -math.inf,
    "sinks": "8x1x1xf32", "sink_size": [8, 3, 1], "drop_end": -1,
})  # fmt: skip
def attention_written_out(
    a: AtenSource, c: Targets, query: Any, key: Any, value: Any, key_order: Attr,
    repeats: Attr, key_axis: Attr, value_axis: Attr,
    key_heads_size: Attr, value_heads_size: Attr, column_size: Attr, value_size: Attr, row_size: Attr,
    query_factor: Const, key_factor: Const, column_factor: Const, score_factor: Const,
    bias: Any, keep: Any, drop: Any, fill: Const, outer_bias: Any, outer_keep: Any, outer_drop: Any, outer_fill: Const,
    sinks: Any, sink_size: Attr, drop_end: Attr,
) -> Rewrite:  # fmt: skip
    """softmax(scale * query @ key^T + mask, -1) @ value

    The eager attention of transformers (BERT, GPT-2, Llama, T5, ViT, OPT, BART), PyTorch's own decomposition of its
    op, `nn.MultiheadAttention` with weights, and nets that write it by hand. Factors may stand at the query, the key
    and the scores; masks are added or put in place of scores, twice at most; the softmax may be computed in float32;
    heads of keys and values may be repeated for groups of queries; a column of sinks may be appended to the scores and
    dropped from the weights (gpt-oss). A mask that is added before the scores are scaled, a function in between (the
    soft cap of Gemma 2) or weights that are used elsewhere do not match, and neither does a finite number in place of
    scores that a score may be below, as -1e9 in float32, or with which rows without a key change.
    """
    factors = (query_factor, key_factor, column_factor, score_factor)
    keys = _heads(a, key, repeats, key_axis, key_heads_size, "key heads")
    columns = _scaled(a.permute(_scaled(keys, key_factor, "key factor"), key_order), column_factor, "column factor")
    columns = any_of(a.view(columns, size=column_size), columns, tag="columns", tags=("joined", "own"))
    scores = _product(a, _scaled(query, query_factor, "query factor"), columns)
    wide_scores = _cast(a, scores, "scores")
    wide_scaled = _cast(a, _scaled(wide_scores, score_factor, "score factor"), "scaled scores")
    inner = _masked(a, wide_scaled, bias, keep, drop, fill, "mask")
    masked = _masked(a, inner, outer_bias, outer_keep, outer_drop, outer_fill, "outer mask")
    logits = _cast(a, masked, "logits")
    softmax = _safe(a, logits, a._softmax(logits, dim=LAST, half_to_float=False))
    shifted = _cast(a, _less_the_largest(a, masked), "shifted logits")
    softmax_of_shifted = a._softmax(shifted, dim=LAST, half_to_float=False)
    sink_column = any_of(a.expand(sinks, size=sink_size, implicit=ANY), sinks, tag="sink rows")
    with_sinks = a.cat([masked, sink_column], dim=LAST)
    less = _less_the_largest(a, with_sinks)
    wider = any_of(less, with_sinks, tag="shift", tags=("less the largest", "none"))
    wider = _cast(a, wider, "logits with sinks")
    all_weights = a._softmax(wider, dim=LAST, half_to_float=False)
    own_weights = a.op("slice.Tensor", all_weights, dim=LAST, start=0, end=drop_end, step=1)
    weights = any_of(softmax, softmax_of_shifted, own_weights, tag="softmax", tags=("plain", "shifted", "with sinks"))
    weights = _cast(a, weights, "weights")
    values = _heads(a, value, repeats, value_axis, value_heads_size, "value heads")
    values = any_of(a.view(values, size=value_size), values, tag="values", tags=("joined", "own"))
    rows = any_of(a.view(weights, size=row_size), weights, tag="rows", tags=("joined", "own"))
    result = _product(a, rows, values)
    return Rewrite(
        result,
        to=c.attention(
            query, key, value, sinks,
            masks=compute("the masks", masks_of), mask_element=wide_scaled.dtype, empty_rows=tag("empty rows"),
            key_order=key_order, column_size=column_size, value_size=value_size, row_size=row_size,
            scale=compute("the product of all factors", _scale),
        ),
        where=[
            query.dtype.is_in(*_PRECISION),
            key.dtype == query.dtype,
            value.dtype == query.dtype,
            weights.dtype == query.dtype,
            *(x.dtype.is_in(query.dtype, "f32") for x in (wide_scores, wide_scaled)),
            logits.dtype.is_in(query.dtype, "f32")
            | shifted.dtype.is_in(query.dtype, "f32")
            | wider.dtype.is_in(query.dtype, "f32"),
            check(
                "the column that is appended to the scores has a sink for each head",
                lambda match: _has_sinks(match, scores, sink_column),
            ),
            (tag("key heads") != "repeated") | (key_axis == key_order[-3]),
            (tag("value heads") != "repeated") | (value_axis == value.rank - 3),
            *((tag(name) == "none") | (factor.value != 0) for name, factor in zip(_FACTORS, factors, strict=True)),
            tag("mask").is_in("none", "added") | (fill.value <= _LARGEST_FILL),
            tag("outer mask").is_in("none", "added") | (outer_fill.value <= _LARGEST_FILL),
            check("the shapes are those of attention", lambda match: _fits(match, scores, masked, result)),
            MASKED_ROWS_ARE_NOT_READ
            | check(
                "no score can be below a number that takes the place of scores",
                lambda m: no_score_is_below(masks_of(m), m[wide_scaled].dtype, _largest_score(m, wide_scores)),
            ),
            MASKED_ROWS_ARE_NOT_READ
            | check(
                "rows without a key keep the weights that the masks give them",
                lambda m: rows_keep_their_weights(masks_of(m), m[wide_scaled].dtype),
            ),
        ],
    )  # fmt: skip

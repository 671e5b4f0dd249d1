"""Attention that models write out: softmax(scale * query @ key^T + mask) @ value as the composite.

`attention_masks.py` computes the composite's mask.
"""

from __future__ import annotations

import math
from typing import Any

from patcomp.authoring import AtenSource, Composites, coreai
from patcomp.ir.types import element_type
from patcomp.ir.value import Value
from patcomp.patterns import ANY, LAST, Attr, Capture, Const, Rewrite, any_of, build, check, compute, rule, tag
from patcomp.patterns.match import Match
from patterns_catalog.assumptions import MASKED_ROWS_ARE_NOT_READ
from patterns_catalog.recover.attention import attention_of_any_rank, own_heads
from patterns_catalog.recover.attention_masks import (
    LARGEST,
    Stages,
    mask_of,
    masks_of,
    no_score_is_below,
    number_of,
    rows_keep_their_weights,
)
from patterns_catalog.views import permuted, viewed

_FACTORS = ("query factor", "key factor", "column factor", "score factor")
"""Where the scores may be scaled; columns are the permuted keys."""

_LARGEST_FILL = -9984.0
"""Numbers up to this one, -1e4 as bfloat16, hide a key when they are put in place of its score."""

_PRECISION = {"f32": 1e-6, "f16": 1e-3, "bf16": 5e-3}
"""How far two rounded factors of each type may be from the number that they stand for."""


# ---- parts of the formula ------------------------------------------------------------------------


def _product(a: AtenSource, x: Any, y: Any) -> Any:
    return any_of(a.matmul(x, y), a.bmm(x, y))


def _cast(a: AtenSource, x: Any) -> Any:
    return any_of(a._to_copy(x, dtype=ANY), x)


def _scaled(x: Any, factor: Any, name: str) -> Any:
    return any_of(x * factor, x / factor, x, tag=name, tags=("times", "over", "none"))


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


def _masked(a: AtenSource, x: Any, bias: Any, condition: Any, fill: Any, name: str) -> Any:
    """One stage of masking, with the condition of `where` either way round."""
    kept, dropped = a.op("where.self", condition, x, fill), a.op("where.self", condition, fill, x)
    return any_of(x + bias, kept, dropped, x, tag=name, tags=("added", "kept", "dropped", "none"))


def _softmax(a: AtenSource, x: Any) -> Any:
    """softmax(x), also less the largest number of each row, which the softmax subtracts in any case."""
    largest = any_of(a.op("max.dim", x, dim=LAST, keepdim=True)[0], a.amax(x, dim=[LAST], keepdim=True))
    return a._softmax(_cast(a, any_of(x - largest, x)), dim=LAST, half_to_float=False)


def _safe_softmax(a: AtenSource, x: Any) -> Any:
    """softmax(x), zero in rows that are all minus infinity: PyTorch's decomposition of its own op."""
    logits = _cast(a, x)
    softmax = a._softmax(logits, dim=LAST, half_to_float=False)
    some = a.op("any.dim", a.logical_not(a.op("eq.Tensor", logits, -math.inf)), dim=LAST, keepdim=True)
    return a.op("where.self", a.logical_not(some), any_of(a.full_like(softmax, 0, dtype=ANY), 0.0), softmax)


# ---- the composite -------------------------------------------------------------------------------


def _attention(
    query: Value, key: Value, value: Value, sinks: Value | None, *,
    masks: Stages, mask_element: str, written_out: bool, key_order: list[int], scale: float | None,
) -> Value:  # fmt: skip
    """The composite of a match.

    Args:
        query, key, value: its inputs; the key in the order in which the model permutes it.
        sinks: the score of the sink of each head, with further axes of size 1.
        masks: the masking of the scores.
        mask_element: the type in which the scores are masked.
        written_out: whether rows that are all minus infinity are NaN, and not zero.
        key_order: the permutation that makes the key the right factor of the scores.
        scale: the factor of the scores, None for 1 / sqrt(width).
    """
    mask = mask_of(masks, element_type(mask_element))
    heads = query.shape[-3]
    key, value = own_heads(heads, (key, key_order[-3]), (value, value.rank - 3))
    key = permuted(key, [*key_order[:-2], key_order[-1], key_order[-2]])
    by_heads = sinks is not None or key.shape[-3] != heads
    if sinks is not None and heads is not None:
        sinks = viewed(sinks, [heads])
    return attention_of_any_rank(
        coreai, query, key, value, mask, sinks, scale=scale, by_heads=by_heads, written_out=written_out
    )


# ---- the formula ---------------------------------------------------------------------------------


@rule(name="attention written out", example={
    "query": "8x3x8xf32", "key": "8x5x8xf32", "value": "8x5x8xf32", "key_order": [0, 2, 1],
    "query_factor": 0.5, "key_factor": 0.7, "column_factor": 0.3, "score_factor": 4.0,
    "bias": "3x5xf32", "condition": "3x5xi1", "fill": -math.inf,
    "outer_bias": "1x3x5xf32", "outer_condition": "3x5xi1", "outer_fill": -math.inf,
    "sinks": "8x1x1xf32", "sink_size": [8, 3, 1], "drop_end": -1,
})  # fmt: skip
def attention_written_out(
    a: AtenSource, c: Composites, query: Capture, key: Capture, value: Capture, key_order: Attr,
    query_factor: Const, key_factor: Const, column_factor: Const, score_factor: Const,
    bias: Capture, condition: Capture, fill: Const, outer_bias: Capture, outer_condition: Capture, outer_fill: Const,
    sinks: Capture, sink_size: Attr, drop_end: Attr,
) -> Rewrite:  # fmt: skip
    """softmax(scale * query @ key^T + mask, -1) @ value

    The eager attention of transformers (BERT, GPT-2, Llama, T5, ViT, OPT, BART), PyTorch's own decomposition of its
    op, `nn.MultiheadAttention` with weights, and nets that write it by hand. Factors may stand at the query, the key
    and the scores; masks are added or put in place of scores, twice at most; scores and softmax may be computed in
    float32; heads of keys and values may be repeated for groups of queries; a column of sinks may be appended to the
    scores and dropped from the weights (gpt-oss). A mask that is added before the scores are scaled, a function in
    between (the soft cap of Gemma 2) or weights that are used elsewhere do not match, and neither does a finite number
    in place of scores that a score may be below, as -1e9 in float32, or with which rows without a key change.
    """
    factors = (query_factor, key_factor, column_factor, score_factor)
    columns = _scaled(a.permute(_scaled(key, key_factor, "key factor"), key_order), column_factor, "column factor")
    product = _product(a, _cast(a, _scaled(query, query_factor, "query factor")), _cast(a, columns))
    scores = _cast(a, product)
    scaled = _cast(a, _scaled(scores, score_factor, "score factor"))
    inner = _cast(a, _masked(a, scaled, bias, condition, fill, "mask"))
    masked = _masked(a, inner, outer_bias, outer_condition, outer_fill, "outer mask")

    sink_column = any_of(a.expand(sinks, size=sink_size, implicit=ANY), sinks)
    with_sinks = _softmax(a, a.cat([masked, sink_column], dim=LAST))
    softmax = any_of(
        _safe_softmax(a, masked),
        _softmax(a, masked),
        a.op("slice.Tensor", with_sinks, dim=LAST, start=0, end=drop_end, step=1),
        tag="softmax", tags=("zero in empty rows", "plain", "with sinks"),
    )  # fmt: skip
    weights = _cast(a, softmax)

    result = _product(a, weights, value)
    return Rewrite(
        result,
        to=build(
            _attention, query, key, value, sinks,
            masks=compute("the masks", masks_of), mask_element=inner.dtype, key_order=key_order,
            written_out=tag("softmax") != "zero in empty rows", scale=compute("the product of all factors", _scale),
        ),
        where=[
            query.dtype.is_in(*_PRECISION),
            *(x.dtype == query.dtype for x in (key, value, weights)),
            *(x.dtype.is_in(query.dtype, "f32") for x in (product, scores, scaled, inner, softmax)),
            *((tag(name) == "none") | (factor.value != 0) for name, factor in zip(_FACTORS, factors, strict=True)),
            tag("mask").is_in("none", "added") | ((fill.value <= _LARGEST_FILL) & (inner.dtype == scaled.dtype)),
            tag("outer mask").is_in("none", "added") | (outer_fill.value <= _LARGEST_FILL),
            check("the shapes are those of attention", lambda match: _fits(match, product, masked, result)),
            check(
                "the column that is appended to the scores has a sink for each head",
                lambda match: match["sinks"] is None or _has_sinks(match, masked, sink_column),
            ),
            MASKED_ROWS_ARE_NOT_READ
            | check(
                "no score can be below a number that takes the place of scores",
                lambda m: no_score_is_below(masks_of(m), m[inner].dtype, _largest_score(m, product, scores)),
            ),
            MASKED_ROWS_ARE_NOT_READ
            | check(
                "rows without a key keep the weights that the masks give them",
                lambda m: rows_keep_their_weights(masks_of(m), m[inner].dtype),
            ),
        ],
    )  # fmt: skip


# ---- conditions ----------------------------------------------------------------------------------


def _fits(match: Match, *nodes: Any) -> bool:
    """Whether the shapes of scores, logits and result are those of attention: only heads and masks broadcast.

    Dynamic dimensions that meet in a product or a sum are equal, or export would not have taken the program.
    """
    query, key, value, order = match["query"], match["key"], match["value"], match["key_order"]
    if len(order) != key.rank or min(query.rank, key.rank, value.rank) < 3:
        return False
    *batch, heads, length, width = query.shape
    key, value = own_heads(heads, (key, order[-3]), (value, value.rank - 3))
    *key_batch, key_heads, key_width, keys = (key.shape[axis] for axis in order)
    *value_batch, value_heads, value_length, value_width = value.shape
    scores = (*batch, heads, length, keys)
    return (
        bool(width)
        and value_width is not None
        and batch == key_batch == value_batch
        and key_heads == value_heads
        and (bool(key_heads) and heads % key_heads == 0 if heads is not None else key_heads is None and query.rank == 3)
        and (query.rank < 5 or all(x.is_static for x in (query, key, value)))
        and (key_width, keys) == (width, value_length)
        and [match[node].shape for node in nodes] == [scores, scores, (*batch, heads, length, value_width)]
    )


def _largest_score(match: Match, product: Any, scores: Any) -> float:
    """The largest magnitude of a finite score before it is masked: of the product's type, then scaled in `scores`'."""
    element, how = match[product].dtype, match.tags["score factor"]
    if match[scores].dtype == element or how == "none":
        return LARGEST[element]
    factor = abs(number_of(match["score_factor"]))
    return LARGEST[element] * (factor if how == "times" else 1 / factor)


def _has_sinks(match: Match, scores: Any, column: Any) -> bool:
    """Whether a column has one sink for each head, and the slice drops its weights."""
    heads, keys = match["query"].shape[-3], match[scores].shape[-1]
    shape: list[int | None] = [1, 1, *match["sinks"].shape]
    return (
        match[column].shape[-1] == 1
        and match["sinks"].rank <= match[scores].rank
        and heads is not None
        and shape[-3:] == [heads, 1, 1]
        and set(shape[:-3]) <= {1}
        and (match["drop_end"] == -1 or (keys is not None and match["drop_end"] == keys))
    )

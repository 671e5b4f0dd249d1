"""Attention head by head, with one transpose: the form of the Neural Engine, which has no fused attention.

    K' = transpose of all keys, scaled                       the only transpose; Q and V are read as they are stored
    for each head:  s = K'_g Q_h, as (B, keys, 1, queries)   with the mask added, softmax over the keys
                    o_h = V_g s
    o = concat of o_h

Here Q, K and V are (B, heads, S, D). The transposes of Q, V and of the result vanish when transposes are carried,
because linear layers as convolutions leave (B, heads, D, S).
"""

from __future__ import annotations

import math

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.composites.attention import scaled_dot_product_attention
from patterns_catalog.slices import slice_axis

MASKED = -40000.0
"""The score of a masked key. Its weight is exactly 0, and minus infinity makes the engine's softmax wrong."""

_QUERIES = 576
"""The most queries that are computed at once."""


@op_rule("target", scaled_dot_product_attention, name="attention with heads apart",
    targets=("neural_engine",),
    unspecified={"limits of 16 bits": "the engine computes scores in float16, where those beyond 65504 are infinite"},
    examples=[
    example("1x2x5x8xf32", "1x2x7x8xf32", "1x2x7x4xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(q, k, v))),
    example("2x4x5x8xf32", "2x2x7x8xf32", "2x2x7x8xf32", "5x7xf32", program=lambda torch, q, k, v, mask: (
        torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True))),
    example("1x2x5x8xf32", "1x2x5x8xf32", "1x2x5x8xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))),
    example("2x8x8xf32", "2x700x8xf32", "2x700x8xf32", program=lambda torch, k, q, v: (
        (torch.softmax(q @ k.transpose(1, 2) * 0.2, -1) @ k) * v)),
])  # fmt: skip
def attention_with_heads_apart(op: OpView, c: Coreai) -> Value:
    """softmax(scale Q K^T + mask) V, each head alone and at most 576 queries at once

    A row that masks every key gives the mean of the values, where PyTorch's operator gives 0 and its formula NaN.
    """
    op.ignore("written_out", because="it only matters for rows that mask every key")
    op.expect(
        not op.is_causal and not op.window_size,
        "is_causal and window_size must be written out as a mask",
    )
    op.expect(op.query.rank in (3, 4), "the query must have rank 3 or 4")
    query, key, value = (x if x.rank == 4 else c.expand_dims(x, [0]) for x in (op.query, op.key, op.value))
    op.expect(query.is_static and key.is_static and value.is_static, "query, key or value has dynamic sizes")
    batch, heads, queries, width = query.static_shape
    op.expect(
        key.shape[0] == batch == value.shape[0] and key.shape[1] == value.shape[1], "the batches or heads broadcast"
    )
    mask = None if op.attn_mask is None else _scores_of_mask(op, c, op.attn_mask, query)
    factor = 1 / math.sqrt(width) if op.scale is None else op.scale
    # a split, unlike slices, does not carry the order of its operand: all keys are transposed at once
    scaled = c.broadcasting_mul(key, factor)
    groups = key.static_shape[1]
    keys = c.split(scaled, [1] * groups, 1) if groups > 1 else [scaled]
    turned_query, turned_value = (c.transpose(x, [0, 1, 3, 2]) for x in (query, value))
    made = []
    for head in range(heads):
        group = head // (heads // groups)
        sink = None if op.sinks is None else _part(c, c.reshape(op.sinks, [1, heads, 1, 1]), 1, head, head + 1)
        parts = []
        for start in range(0, queries, _QUERIES):
            end = min(queries, start + _QUERIES)
            one = _part(c, _part(c, turned_query, 1, head, head + 1), 3, start, end)
            scores = _by_keys(c, c.broadcasting_batch_matmul(keys[group], one))
            if mask is not None:
                own = mask if mask.shape[1] == 1 else _part(c, mask, 1, head, head + 1)
                scores = c.broadcasting_add(scores, _by_keys(c, _part(c, own, 3, start, end)))
            weights = _by_queries(c, _softmax(c, scores, sink))
            parts.append(c.broadcasting_batch_matmul(_part(c, turned_value, 1, group, group + 1), weights))
        made.append(parts[0] if len(parts) == 1 else c.concat(3, parts))
    result = c.transpose(made[0] if heads == 1 else c.concat(1, made), [0, 1, 3, 2])
    return result if op.query.rank == 4 else c.shrink_dims(result, [0])


def _part(c: Coreai, x: Value, axis: int, start: int, end: int) -> Value:
    """The elements of one axis from a start to an end; `x` itself if these are all."""
    if (start, end) == (0, x.shape[axis]) or x.shape[axis] == 1:
        return x
    return slice_axis(c, x, axis, start, end)


def _by_keys(c: Coreai, scores: Value) -> Value:
    """(B, 1, keys, queries) as (B, keys, 1, queries)."""
    batch, _, keys, queries = scores.static_shape
    return c.reshape(scores, [batch, keys, 1, queries])


def _by_queries(c: Coreai, weights: Value) -> Value:
    batch, keys, _, queries = weights.static_shape
    return c.reshape(weights, [batch, 1, keys, queries])


def _softmax(c: Coreai, scores: Value, sink: Value | None) -> Value:
    """The softmax over the keys. A sink takes part as a further key, and has no value."""
    if sink is None:
        return c.softmax(scores, 1)
    batch, keys, _, queries = scores.static_shape
    further = c.broadcast_to(c.cast(sink, scores.element_type), [batch, 1, 1, queries])
    return _part(c, c.softmax(c.concat(1, [scores, further]), 1), 1, 0, keys)


def _scores_of_mask(op: OpView, c: Coreai, mask: Value, query: Value) -> Value:
    """The numbers that the mask adds to scores, as (B, heads, keys, queries), at least -40000."""
    op.expect(mask.is_static and mask.rank <= 4, "the mask has dynamic sizes or a rank above 4")
    constant = mask.constant
    if constant is not None:
        whole = ~constant.any(-1) if mask.dtype == "i1" else (constant <= MASKED).all(-1)
        op.expect(not bool(np.any(whole)), "a row of the mask hides every key")
    element = query.element_type
    if mask.dtype == "i1":
        added = c.broadcasting_where(mask, c.constant(0.0, element), c.constant(MASKED, element))
    else:
        added = c.broadcasting_maximum(c.cast(mask, element), c.constant(MASKED, element))
    added = c.reshape(added, [*([1] * (4 - mask.rank)), *mask.static_shape])
    return c.transpose(added, [0, 1, 3, 2])

"""Scaled dot-product attention as a composite."""

from __future__ import annotations

import math

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Rejected, composites
from patterns_catalog.sizes import size_of, sizes_of
from patterns_catalog.views import last_two_swapped


@composites.define
@composite(
    "scaled_dot_product_attention",
    inputs=("query", "key", "value", "attn_mask", "sinks"),
    attributes=("scale", "is_causal", "window_size"),
)
def scaled_dot_product_attention(
    c: Coreai, query: Value, key: Value, value: Value, mask: Value | None = None, sinks: Value | None = None, *,
    scale: float | None, is_causal: bool, window_size: int, written_out: bool = False,
) -> Value:  # fmt: skip
    """softmax(scale * query @ key^T + mask) @ value (Vaswani et al. 2017, arXiv:1706.03762).

    A bool mask takes part where it is true. A row whose scores are all minus infinity gives zero, as in PyTorch's op;
    where a model writes attention out (`written_out`), the row is NaN, as in the formula. A sink is the score of
    a further key whose value is zero, one for each head (Xiao et al. 2024, arXiv:2309.17453).

    If the call is causal, the last query sees all keys, and each query before it one key fewer. A query attends to the
    last `window_size` of the keys that it sees, or to all if the size is 0.
    """
    heads = query.shape[-3]
    assert heads is not None
    if is_causal and mask is None:
        mask = lower_right_mask(c, query, key, window_size)
    elif is_causal or window_size:
        raise Rejected("attention with a mask cannot be causal too, and a window needs causal attention")
    keys, values = (repeat_heads(c, x, heads) for x in (key, value))
    return attend(c, query, keys, values, mask, scale, sinks=sinks, written_out=written_out)


def attend(
    c: Coreai, query: Value, keys: Value, values: Value, mask: Value | None, scale: float | None, *,
    sinks: Value | None = None, written_out: bool = False,
) -> Value:  # fmt: skip
    """The formula of attention, on tensors whose leading dimensions broadcast.

    As in PyTorch, the scores of half types and their softmax are float32: a rounded score of 100 is a weight that is
    off by several percent.

    Args:
        written_out: compute masks as the formula of a model does. PyTorch's op adds a mask of numbers in
            float32, and rows without a key give zero. A model adds the mask in the mask's own type, in which a large
            number absorbs the scores, and rows without a key give NaN.
    """
    if scale is None:
        if not query.shape[-1]:
            raise Rejected("attention needs heads of a static width of at least 1")
        scale = 1.0 / math.sqrt(query.shape[-1])
    query, keys = (c.cast(x, "f32") if x.dtype in ("f16", "bf16") else x for x in (query, keys))
    scores = c.broadcasting_batch_matmul(
        c.broadcasting_mul(query, scale), c.transpose(keys, last_two_swapped(keys.rank))
    )
    lowest = c.constant(-math.inf, scores.element_type)
    if mask is not None and mask.dtype == "i1":
        scores = c.broadcasting_where(mask, scores, lowest)
    elif mask is not None:
        element = mask.element_type if written_out else scores.element_type
        scores = c.cast(c.broadcasting_add(c.cast(scores, element), c.cast(mask, element)), scores.element_type)
    last = scores.rank - 1
    weights = c.softmax(scores, last) if sinks is None else _softmax_with_sinks(c, scores, sinks)
    if mask is not None and not written_out:
        # the softmax of a row of -inf is NaN; such a row attends to nothing (a row with a NaN does)
        attends = c.broadcasting_not_equal(c.reduce_max(scores, [last]), lowest)
        weights = c.broadcasting_where(attends, weights, c.constant(0.0, scores.element_type))
    return c.broadcasting_batch_matmul(c.cast(weights, values.element_type), values)


def _softmax_with_sinks(c: Coreai, scores: Value, sinks: Value) -> Value:
    """The softmax over the scores and the sink of their head, without the weight of the sink."""
    last = scores.rank - 1
    sinks = c.cast(c.reshape(sinks, [size_of(c, sinks, 0), 1, 1]), scores.element_type)
    largest = c.broadcasting_maximum(c.reduce_max(scores, [last]), sinks)
    weights = c.exp(c.broadcasting_sub(scores, largest))
    total = c.broadcasting_add(c.reduce_sum(weights, [last]), c.exp(c.broadcasting_sub(sinks, largest)))
    return c.broadcasting_divide(weights, total)


def repeat_heads(c: Coreai, x: Value, heads: int) -> Value:
    """Grouped queries: each head of keys or values serves several heads of queries."""
    own = x.shape[-3]
    if own == heads:
        return x
    if own is None:
        raise Rejected("attention needs a static number of heads")
    *batch, _, length, width = sizes_of(c, x)
    wide = c.expand_dims(x, [x.rank - 2])
    wide = c.broadcast_in_dims(wide, [heads // own], [x.rank - 2])
    return c.reshape(wide, [*batch, heads, length, width])


def causal_mask(c: Coreai, query: Value, key: Value) -> Value:
    """Where a query may attend to a key: not to later ones, both counted from the first."""
    length, keys = size_of(c, query, -2), size_of(c, key, -2)
    if isinstance(length, int) and isinstance(keys, int):
        return c.constant(np.tri(length, keys, dtype=np.bool_))
    rows, columns = (c.range(c.constant(0), c.cast(size, "si32"), c.constant(1)) for size in (length, keys))
    return c.not_(c.broadcasting_greater(c.expand_dims(columns, [0]), c.expand_dims(rows, [1])))


def lower_right_mask(c: Coreai, query: Value, key: Value, window: int) -> Value:
    """Where a query may attend to a key: not to later ones, both counted from the last, nor to those before a window.

    The runtime fails at sums of dynamic sizes in a graph that is called twice, so that the ranges are reversed instead.
    """
    length, keys = size_of(c, query, -2), size_of(c, key, -2)
    if isinstance(length, int) and isinstance(keys, int):
        return c.constant(lower_right(length, keys, window))
    rows, columns = (
        c.reverse(c.range(c.constant(0), c.cast(size, "si32"), c.constant(1)), [0]) for size in (length, keys)
    )
    rows, columns = c.expand_dims(rows, [1]), c.expand_dims(columns, [0])
    mask = c.not_(c.broadcasting_greater(rows, columns))
    if not window:
        return mask
    return c.broadcasting_and(mask, c.broadcasting_greater(c.broadcasting_add(rows, c.constant(window)), columns))


def lower_right(queries: int, keys: int, window: int) -> np.ndarray:
    """The mask of `lower_right_mask` for static sizes; a window of 0 is none."""
    causal = np.tri(queries, keys, keys - queries, dtype=np.bool_)
    return causal & ~np.tri(queries, keys, keys - queries - window, dtype=np.bool_) if window else causal

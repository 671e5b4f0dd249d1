"""Scaled dot-product attention as a composite."""

from __future__ import annotations

import math

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.extents import extents
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rejected, composites, example, op_rule
from patcomp.patterns.aspects import SPECIAL
from patterns_catalog.sizes import size_of, sizes_of, view_sizes
from patterns_catalog.views import arguments_of, last_two_swapped


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


def own_heads(heads: int | None, key: tuple[Value, int], value: tuple[Value, int]) -> list[Value]:
    """Keys and values from before their heads were repeated for groups of queries.

    Both stay as they are if they would have different numbers of heads, or if the number is dynamic.

    Args:
        heads: the number of heads of the query.
        key, value: each with its axis of heads.
    """
    own = [x if heads is None or x.shape[axis] != heads else _before_repeating(x, axis) for x, axis in (key, value)]
    return own if own[0].shape[key[1]] == own[1].shape[value[1]] else [key[0], value[0]]


def _before_repeating(x: Value, axis: int) -> Value:
    found = arguments_of(x, "repeat_interleave.self_int", "expand")
    if found is None or found["self"].rank != x.rank:
        return x
    sizes = extents(x)
    repeats = (
        found["dim"] == axis if "dim" in found else extents(found["self"]) == [*sizes[:axis], 1, *sizes[axis + 1 :]]
    )
    own: Value = found["self"]
    return own if repeats else x


_KERNELS = dict.fromkeys(SPECIAL, "eager's kernels differ in where NaN makes a row NaN and where 0")


@op_rule("recover", "aten.scaled_dot_product_attention", name="scaled_dot_product_attention",
         unspecified=_KERNELS, examples=[
    example("1x2x3x4xf32", "1x2x5x4xf32", "1x2x5x6xf32"),
    example("1x2x3x4xf32", "1x2x5x4xf32", "1x2x5x4xf32", "3x5xi1", scale=0.3),
    example("2x2x3x4xf32", "2x2x3x4xf32", "2x2x3x4xf32", is_causal=True),
    example("1x4x3x4xf32", "1x2x5x4xf32", "1x2x5x4xf32", "1x1x3x5xf32", enable_gqa=True),
    example("2x3x4xf32", "2x5x4xf32", "2x5x4xf32"),
])  # fmt: skip
def aten_attention(op: OpView, c: Coreai) -> Value:
    """softmax(scale * query @ key^T + mask, -1) @ value: the op that export keeps whole

    A causal mask is built outside, upper-left aligned, and passed as the mask.
    """
    query, key, value, mask = op.query, op.key, op.value, op.attn_mask
    rank = query.rank
    op.expect(
        rank >= 3 and key.rank == value.rank == rank,
        "query, key and value of attention must have one rank of at least 3",
    )
    key, value = own_heads(query.shape[-3], (key, rank - 3), (value, rank - 3))
    grouped = op.enable_gqa or key != op.key
    op.expect(op.dropout_p == 0.0, "attention with dropout is random")
    one_head = rank == 3 and not grouped  # and the leading axis is the batch
    op.expect(one_head or None not in (query.shape[-3], key.shape[-3]), "attention needs a static number of heads")
    kept = -3 if grouped else -2  # grouped queries have more heads than keys and values
    op.expect(
        query.shape[:kept] == key.shape[:kept] == value.shape[:kept],
        "attention broadcasts its batch dimensions, which the composite does not",
    )
    op.expect(mask is None or (mask.rank <= rank), "the attention mask has more dimensions than the query")
    if op.is_causal:
        op.expect(mask is None, "attn_mask and is_causal exclude each other, as in PyTorch")
        mask = causal_mask(c, query, key)
    op.expect(
        rank <= 4 or all(x.is_static for x in (query, key, value)),
        "attention with more than 4 dimensions needs static shapes",
    )
    return attention_of_any_rank(c, query, key, value, mask, scale=op.scale, by_heads=grouped)


def attention_of_any_rank(
    c: Coreai, query: Value, key: Value, value: Value, mask: Value | None, sinks: Value | None = None, *,
    scale: float | None, by_heads: bool, written_out: bool = False,
) -> Value:  # fmt: skip
    """The composite, which has a batch and heads, for inputs of rank 3 or more.

    Args:
        by_heads: the first axis of inputs of rank 3 is that of the heads, not the batch.
        written_out: as in `attend`.
    """
    rank, shape = query.rank, (*query.shape[:-1], value.shape[-1])
    if rank == 3:
        axis = 0 if by_heads else 1
        query, key, value = (c.expand_dims(x, [axis]) for x in (query, key, value))
        if mask is not None and mask.rank == 3:
            mask = c.expand_dims(mask, [axis])
    elif rank > 4:
        batch = list(query.static_shape[:-3])
        query, key, value = (c.reshape(x, [-1, *x.static_shape[-3:]]) for x in (query, key, value))
        if mask is not None and mask.rank > 3:
            leading = [1] * (rank - mask.rank)
            inner = mask.static_shape[-3:]
            wide = c.broadcast_to(c.reshape(mask, [*leading, *mask.static_shape]), [*batch, *inner])
            mask = c.reshape(wide, [-1, *inner])
    result = scaled_dot_product_attention(
        query, key, value, mask, sinks, scale=scale, is_causal=False, window_size=0, written_out=written_out
    )
    if rank == 4:
        return result
    sizes = sizes_of(c, result)
    return c.reshape(result, view_sizes(shape, [*sizes[:axis], *sizes[axis + 1 :]] if rank == 3 else shape))

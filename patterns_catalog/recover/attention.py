"""The attention that export keeps whole as the composite, of any rank."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.extents import extents
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patcomp.patterns.aspects import SPECIAL
from patterns_catalog.composites.attention import causal_mask, scaled_dot_product_attention
from patterns_catalog.sizes import sizes_of, view_sizes
from patterns_catalog.views import arguments_of


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

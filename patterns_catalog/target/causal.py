"""Causal masks and sliding windows as attributes of attention, which a GPU's kernel does not have to read."""

from __future__ import annotations

import math

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.extents import Extent, Unknown
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.composites.attention import lower_right, scaled_dot_product_attention
from patterns_catalog.target.positions import band_of

_HIDDEN = {"f16": -65504.0}
"""A score plus at most this number has the weight 0; for other types it is -1e9."""


@op_rule("target", scaled_dot_product_attention, name="causal attention", targets=("gpu",), examples=[
    example("1x2x5x8xf32", "1x2x5x8xf32", "1x2x5x8xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))),
    example("2x4x3x8xf32", "2x2x7x8xf32", "2x2x7x4xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(
            q, k, v, torch.ones(3, 7, dtype=torch.bool).tril(4), enable_gqa=True))),
    example("1x2x6x8xf32", "1x2x6x8xf32", "1x2x6x8xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(q, k, v, torch.full((6, 6), -1e30).triu(1)))),
    example("1x2x3x8xf32", "1x2x6x8xf32", "1x2x6x8xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(
            q, k, v, torch.ones(1, 1, 3, 6, dtype=torch.bool).tril(3).triu(2)))),
    example("1x2x40x8xf32", "1x2x40x8xf32", "1x2x40x8xf32", program=lambda torch, q, k, v: (
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))),
])  # fmt: skip
def causal_attention(op: OpView, c: Coreai) -> Value:
    """a mask that hides later keys, and keys before a window -> `is_causal` and `window_size`

    The last query sees the last key. A mask of numbers must be 0 or so negative that the weight is 0.
    """
    op.expect(op.attn_mask is not None, "the attention has no mask")
    op.expect(not op.is_causal and not op.window_size, "the attention is causal already")
    query, key = op.query, op.key
    op.expect(query.rank == key.rank == 4, "query and key must have rank 4")
    window = _window(op, op.attn_mask, query.shape[-2], key.shape[-2])
    made = scaled_dot_product_attention(
        query, key, op.value, None, op.sinks, scale=op.scale, is_causal=True, window_size=window,
        written_out=op.written_out,
    )  # fmt: skip
    assert isinstance(made, Value)
    return made


def _window(op: OpView, mask: Value, queries: int | None, keys: int | None) -> int:
    """The window of a causal mask, 0 for none; it is refused if the mask is not provably causal."""
    values = constant_values(mask.ssa, Builder.current().blobs)
    if values is None:
        return _window_of_positions(op, mask)
    op.expect(queries is not None and keys is not None, "the mask is constant, but a length is dynamic")
    assert queries is not None
    assert keys is not None
    op.expect(0 < queries <= keys, "there are fewer keys than queries, so some queries would have no key")
    op.expect(mask.rank >= 2 and mask.static_shape[-2:] == (queries, keys), "the mask broadcasts its rows or columns")
    if mask.dtype != "i1":
        hidden = values <= _HIDDEN.get(mask.dtype, -1e9)
        op.expect(bool((hidden | (values == 0)).all()), "the mask adds numbers that are not 0 and do not hide a key")
        values = ~hidden
    first = values.reshape(-1, queries, keys)[0].astype(np.bool_)
    op.expect(bool((values == first).all()), "the mask differs between heads or examples")
    window = int(first[-1].sum())
    for size in (0, window):
        if np.array_equal(first, lower_right(queries, keys, size)):
            return size
    op.reject("the mask is neither causal nor a causal window")


def _window_of_positions(op: OpView, mask: Value) -> int:
    if mask.dtype != "i1":
        mask = _condition(op, mask)
    band = band_of(mask)
    if band is None:
        op.reject("the mask is not provably a comparison of consecutive positions")
    op.expect(band.least == 0 <= band.most, "the mask is not causal")
    rows, columns = band.lengths.get(-2), band.lengths.get(-1)
    missing: Extent | None = 0 if rows == columns is not None else None  # the keys that are before the first query
    if isinstance(rows, int | Unknown) and isinstance(columns, int | Unknown):
        missing = columns + -1 * rows
    op.expect(missing is not None and band.shift == missing, "the last query is not provably at the last key")
    return 0 if band.most == math.inf else int(band.most) + 1


def _condition(op: OpView, mask: Value) -> Value:
    """The bools of a mask of numbers: 0 where they are true, else a number that hides a key."""
    source = mask
    while (cast := source.made_by("coreai.cast")) is not None:
        source = Value(cast.operands[0])
    where = source.made_by("coreai.decomposable.broadcasting_where")
    condition, shown, hidden = map(
        Value, where.operands if where is not None else op.reject("no condition chooses the mask")
    )
    zero, low = shown.constant, hidden.constant
    if zero is None or low is None:
        op.reject("the mask does not choose between constants")
    op.expect(bool(np.all(zero == 0)), "the mask adds numbers to scores")
    op.expect(bool(np.all(low <= _HIDDEN.get(mask.dtype, -1e9))), "the mask does not hide keys")
    return condition

"""Attention in forms that the composite does not have."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.attention import attend, causal_mask, repeat_heads


@lowering("aten.scaled_dot_product_attention", name="attention that broadcasts", examples=[
    example("3x4xf32", "5x4xf32", "5x6xf32", "3x5xf32"), example("2x1x3x4xf32", "2x5x4xf32", "2x2x5x6xf32"),
    example("3x4xf32", "5x4xf32", "5x6xf32", is_causal=True),
])  # fmt: skip
def broadcasting_attention(op: OpView, c: Coreai) -> Value:
    "softmax(scale * query @ key^T + mask) @ value, on matrices alone or with batches that broadcast"
    query, key, value, mask = op.query, op.key, op.value, op.attn_mask
    op.expect(op.dropout_p == 0.0, "attention with dropout is random; export after model.eval()")
    if op.is_causal:
        op.expect(mask is None, "attn_mask and is_causal exclude each other, as in PyTorch; give one of them")
        mask = causal_mask(c, query, key)
    if op.enable_gqa:
        heads = query.shape[-3]
        op.expect(heads is not None, "enable_gqa needs a static number of heads; export with that dimension fixed")
        key, value = repeat_heads(c, key, heads), repeat_heads(c, value, heads)
    return attend(c, query, key, value, mask, op.scale)

"""Attention and rotary positions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.rows import MICROSOFT, NodeCall, onnx_op


def _in_heads(x: Tensor, heads: int) -> Tensor:
    """From (batch, length, heads x size) to (batch, heads, length, size)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


@onnx_op("Attention")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: int = 0,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    qk_matmul_output_mode: int = 0,
    softmax_precision: int | None = None,
    node: NodeCall,
) -> Any:
    if softcap or node.outputs > 3:
        raise TypeError("softcap, and the product of queries and keys as an output, are not supported")
    flat = query.dim() == 3
    if flat:
        query = _in_heads(query, q_num_heads)
        key, value = _in_heads(key, kv_num_heads), _in_heads(value, kv_num_heads)
    if past_key is not None:
        assert past_value is not None  # both or none, says the op
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        if is_causal:
            raise TypeError("is_causal with a past is not supported; export the model with a mask")
    if is_causal and mask is not None:
        seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
        mask = mask & seen if mask.dtype == torch.bool else torch.where(seen, mask, -torch.inf)
        is_causal = 0
    grouped = {"enable_gqa": True} if query.shape[1] != key.shape[1] else {}
    result = F.scaled_dot_product_attention(query, key, value, mask, 0.0, bool(is_causal), scale=scale, **grouped)
    result = result.transpose(1, 2).flatten(2) if flat else result
    return (result, key, value)[: node.outputs]


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    scale: float | None = None,
    mask_filter_value: float = -10000.0,
    node: NodeCall,
) -> Any:
    if key_padding_mask is not None or query.dim() != 3 or key.dim() != 3 or node.outputs > 1:
        raise TypeError("packed inputs, a padding mask and outputs of keys are not supported")
    if bias is not None:
        width, wide = query.shape[-1], value.shape[-1]
        of_query, of_key, of_value = torch.split(bias, [width, width, wide])
        query, key, value = query + of_query, key + of_key, value + of_value
    query, key, value = (_in_heads(each, num_heads) for each in (query, key, value))
    result = F.scaled_dot_product_attention(query, key, value, attention_bias, scale=scale or None)
    return result.transpose(1, 2).flatten(2)


@onnx_op("RotaryEmbedding")
def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    flat = x.dim() == 3
    x = _in_heads(x, num_heads) if flat else x
    if positions is not None:
        cos, sin = F.embedding(positions, cos), F.embedding(positions, sin)
    rotated, rest = (x.split([rotary_embedding_dim, x.shape[-1] - rotary_embedding_dim], -1)
                     if rotary_embedding_dim else (x, None))  # fmt: skip
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    first, second = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, -1)
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    joined = torch.stack((real, imaginary), -1).flatten(-2) if interleaved else torch.cat((real, imaginary), -1)
    joined = joined if rest is None else torch.cat((joined, rest), -1)
    return joined.transpose(1, 2).flatten(2) if flat else joined


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_of_microsoft(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    is_packed_batching: int = 0,
) -> Tensor:
    if x.dim() == 3 and not num_heads:
        num_heads = x.shape[-1] // (2 * cos.shape[-1])
    if positions.dim() != 2 or is_packed_batching or scale != 1:
        raise TypeError("positions by an offset, packed batches and a scale are not supported")
    return rotary_embedding(
        x, cos, sin, positions, interleaved=interleaved, num_heads=num_heads, rotary_embedding_dim=rotary_embedding_dim
    )

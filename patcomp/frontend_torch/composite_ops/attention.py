"""Scaled dot-product attention as a module."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from patcomp.frontend_torch.composite_ops.version import Version


class SDPA(nn.Module):
    """softmax(scale * query @ key^T + mask) @ value (Vaswani et al. 2017, arXiv:1706.03762).

    Keys and values may have fewer heads than queries (grouped queries, arXiv:2305.13245); each of their
    heads then serves a group of query heads.

    Without a mask argument, query i has the position `key length - query length + i`: masks are aligned at
    the lower right, as decoding with a cache needs it.

    Args:
        scale: factor of the scores; 1 / sqrt(head size) by default.
        is_causal: queries see no keys after their own position.
        window_size: queries see only keys less than this many positions away; 0 means no limit.
        _use_hf_impl: repeat keys and values for every query head, as models of Hugging Face do.
    """

    def __init__(
        self,
        scale: float | None = None,
        is_causal: bool = False,
        window_size: int = 0,
        _use_hf_impl: bool = False,
    ):
        super().__init__()
        self.version = Version.v1
        self.scale = scale
        self.is_causal = is_causal
        self.window_size = window_size
        self._use_hf_impl = _use_hf_impl

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The attended values, `[batch, query heads, query length, value head size]`.

        Args:
            query: `[batch, query heads, query length, head size]`.
            key: `[batch, key heads, key length, head size]`.
            value: `[batch, value heads, key length, value head size]`.
            attn_mask: broadcasts to `[batch, query heads, query length, key length]`; bool, true where a query
                sees a key, or floats that are added to the scores. It replaces `is_causal` and `window_size`.
                The result of a query that sees no key is zeros.
            sinks: `[query heads]`, the score of a further key whose value is zero.

        Raises:
            ValueError: a rank, a number of heads or the shape of `sinks` is wrong, or a causal mask has more
                queries than keys.
            NotImplementedError: `sinks` with `_use_hf_impl`.
        """
        heads = query.shape[1] if query.dim() == 4 else 0
        if any(tensor.dim() != 4 for tensor in (query, key, value)):
            raise ValueError(
                f"SDPA needs tensors of rank 4, got ranks {query.dim()}, {key.dim()} and {value.dim()} "
                "of query, key and value"
            )
        for name, tensor in (("key", key), ("value", value)):
            if heads % tensor.shape[1]:
                raise ValueError(f"the {heads} heads of query are no multiple of the {tensor.shape[1]} of {name}")
        if sinks is not None and tuple(sinks.shape) != (heads,):
            raise ValueError(f"sinks must have the shape ({heads},), one for each head, got {tuple(sinks.shape)}")
        mask = attn_mask if attn_mask is not None else self._position_mask(query, key)
        if self._use_hf_impl:
            if sinks is not None:
                raise NotImplementedError("SDPA with _use_hf_impl has no sinks")
            key, value = (repeat_heads(tensor, heads).contiguous() for tensor in (key, value))
        if sinks is not None:
            return self._with_sinks(query, repeat_heads(key, heads), repeat_heads(value, heads), mask, sinks)
        grouped = key.shape[1] != heads or value.shape[1] != heads
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=self.scale, enable_gqa=grouped
        )

    def _position_mask(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
        """True where a query sees a key by their positions; None where it sees all of them."""
        if not self.is_causal and self.window_size <= 0:
            return None
        query_length, key_length = query.shape[-2], key.shape[-2]
        if self.is_causal and query_length > key_length:
            raise ValueError(f"a causal mask of {query_length} queries needs as many keys, got {key_length}")
        queries = torch.arange(query_length, device=query.device).unsqueeze(1) + (key_length - query_length)
        distance = queries - torch.arange(key_length, device=query.device).unsqueeze(0)
        if self.window_size <= 0:
            return distance >= 0
        if self.is_causal:
            return (distance >= 0) & (distance < self.window_size)
        return (distance > -self.window_size) & (distance < self.window_size)

    def _with_sinks(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        sinks: torch.Tensor,
    ) -> torch.Tensor:
        scale = self.scale if self.scale is not None else query.shape[-1] ** -0.5
        scores = (query * scale) @ key.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        column = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
        return weights @ value


def repeat_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Repeat each head of `x`, so that there are `heads` of them."""
    batch, own, length, size = x.shape
    if own == heads:
        return x
    wide = x.unsqueeze(2).expand(batch, own, heads // own, length, size)
    return wide.reshape(batch, heads, length, size)

"""A layer of latent attention, with the variations that it may have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS, KEY, VALUE, ROTARY, LATENT = 4, 6, 8, 2, 5


class LatentAttention(nn.Module):
    """The latent attention of transformers, without projections of its inputs.

    Args:
        options: of PyTorch's attention.
    """

    def __init__(self, **options: Any):
        super().__init__()
        self.kv_b_proj = nn.Linear(LATENT, HEADS * (KEY + VALUE), bias=False)
        self.options = options

    def expand_kv(self, latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of heads."""
        batch, _, length, _ = latents.shape
        made = self.kv_b_proj(latents).view(batch, length, HEADS, KEY + VALUE).transpose(1, 2)
        keys, values = made.split([KEY, VALUE], dim=-1)
        return torch.cat([keys, rotated.expand(batch, HEADS, length, ROTARY)], -1), values

    def forward(self, query: Tensor, latents: Tensor, rotated: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention of each head.

        Args:
            query: (batch, heads, q, key size + rotary size).
            latents: (batch, 1, n, latent size).
            rotated: (batch, 1, n, rotary size).
            mask: of the scores.

        Returns:
            (batch, heads, q, value size).
        """
        key, value = self.expand_kv(latents, rotated)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, **self.options)


def inputs(batch: int = 2, queries: int = 3, length: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """A query, latents and rotated parts of keys."""
    draw = torch.Generator().manual_seed(0)
    shapes = (batch, HEADS, queries, KEY + ROTARY), (batch, 1, length, LATENT), (batch, 1, length, ROTARY)
    query, latents, rotated = (torch.randn(shape, generator=draw) for shape in shapes)
    return query, latents, rotated

"""Attention on tensors that stand as batches of heads, as BLOOM writes it."""

from __future__ import annotations

import torch

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 3, 5, 8


Tensors = tuple[torch.Tensor, ...]


def tensors() -> Tensors:
    """Query, key, value with their heads, and a bias of all scores."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((QUERIES, WIDTH), (KEYS, WIDTH), (KEYS, WIDTH), (QUERIES, KEYS))
    return tuple(torch.randn(BATCH, HEADS, *shape, generator=generator) for shape in shapes)


def joined(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def split(x: torch.Tensor) -> torch.Tensor:
    return x.view(BATCH, HEADS, *x.shape[-2:])


def bloom_with_bias_of_columns(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The bias of ALiBi: one for each head and key."""
    alibi = joined(bias)[:, :1]
    scores = torch.baddbmm(alibi, joined(q), joined(k).transpose(1, 2), beta=1.0, alpha=WIDTH**-0.5)
    return split(torch.bmm(joined(split(scores).softmax(-1)), joined(v)))

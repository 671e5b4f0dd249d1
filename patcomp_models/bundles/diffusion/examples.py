"""Example inputs of the models of pipelines: the same numbers each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def noise(*sizes: int) -> Tensor:
    """Random numbers, the same ones each time."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


def tables_like(rows: int, widths: Sequence[int]) -> dict[str, Tensor]:
    """Example tables of a rotary embedding, (rows, sum of the widths), whose columns come in pairs."""
    angles = noise(rows, sum(widths) // 2).repeat_interleave(2, dim=1)
    return {"rotary_emb_cos": angles.cos(), "rotary_emb_sin": angles.sin()}


def half_mask(length: int) -> Tensor:
    """An example mask of a text of half the length, (1, length) of int32."""
    return (torch.arange(length)[None] < length // 2).int()


def example_text(model: Any, length: int) -> Tensor:
    """An example text, (1, length) of int32; its last token is the one that ends a text."""
    config = model.config.get_text_config()
    ids = torch.arange(length, dtype=torch.int32)[None] % config.vocab_size
    if isinstance(end := getattr(config, "eos_token_id", None), int) and end < config.vocab_size:
        ids[ids == end] = 0
        ids[0, -1] = end
    return ids

"""Rotary embeddings as models write them."""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensors = tuple[torch.Tensor, ...]


def angles(positions: torch.Tensor, width: int) -> torch.Tensor:
    """[batch, positions, width / 2]"""
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    return positions[:, :, None].float() * frequencies


def wide_tables(x: torch.Tensor, positions: torch.Tensor, width: int, factor: float = 1.0) -> Tensors:
    """As in transformers: both halves, a factor of attention, the dtype of the input, a head dimension."""
    half = angles(positions, width)
    wide = torch.cat((half, half), dim=-1)
    return tuple((table * factor).to(x.dtype).unsqueeze(1) for table in (wide.cos(), wide.sin()))


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def of(form: Callable[..., torch.Tensor], width: int = 8) -> Callable[..., torch.Tensor]:
    """A form as a function of tensors only."""
    return lambda x, positions: form(x, positions, width)

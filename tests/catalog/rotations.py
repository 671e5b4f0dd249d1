"""Rotary embeddings as models write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from patcomp import AIProgram

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


def inputs(shape: Any = (2, 3, 5, 8), dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    return x, torch.randint(0, 40, (shape[0], shape[2]), generator=generator)


def ropes(program: AIProgram) -> int:
    """How many calls of the composite a program makes."""
    return program.composites.get("rope", 0)


def half_tables(x: torch.Tensor, positions: torch.Tensor, width: int) -> Tensors:
    half = angles(positions, width)
    return tuple(table.to(x.dtype).unsqueeze(1) for table in (half.cos(), half.sin()))


def rotate_half_by_chunk(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((second * -1, first), dim=-1)


def rotate_neighbours(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


# ---- whole heads -----------------------------------------------------------------------------------


def llama(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, width)
    return x * cos + rotate_half(x) * sin


def sine_first(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, width, 0.9)
    return sin * rotate_half_by_chunk(x) + cos * x


def repeated(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    wide = angles(positions, width).repeat(1, 1, 2)[:, None]
    return x * wide.cos().to(x.dtype) + rotate_half(x) * wide.sin().to(x.dtype)


def gpt_oss(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = half_tables(x, positions, width)
    first, second = torch.chunk(x, 2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def cohere(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    wide = torch.repeat_interleave(angles(positions, width), 2, dim=-1)
    cos, sin = (table.to(x.dtype).unsqueeze(1) for table in (wide.cos(), wide.sin()))
    return x * cos + rotate_neighbours(x) * sin


def stacked_tables(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    half = angles(positions, width)
    wide = torch.stack((half, half), dim=-1).flatten(-2)[:, None]
    return x * wide.cos().to(x.dtype) + rotate_neighbours(x) * wide.sin().to(x.dtype)


def helium(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, width)
    cos, sin = (t[..., : t.shape[-1] // 2].repeat_interleave(2, dim=-1) for t in (cos, sin))
    return x * cos + rotate_neighbours(x) * sin


def neighbours(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = half_tables(x, positions, width)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def nanochat(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, width)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((second, -first), dim=-1) * sin


def nanochat_with_half_tables(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    cos, sin = half_tables(x, positions, width)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, first * (-sin) + second * cos), dim=-1)


def neighbours_the_other_way(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
    wide = torch.repeat_interleave(angles(positions, width), 2, dim=-1)[:, None]
    turned = torch.stack((x[..., 1::2], -x[..., ::2]), dim=-1).flatten(-2)
    return x * wide.cos().to(x.dtype) + turned * wide.sin().to(x.dtype)


FORMS: dict[str, tuple[Callable[..., torch.Tensor], bool]] = {
    form.__name__: (form, interleaved)
    for form, interleaved in (
        (llama, False), (sine_first, False), (repeated, False), (gpt_oss, False),
        (cohere, True), (stacked_tables, True), (helium, True), (neighbours, True),
        (nanochat, False), (nanochat_with_half_tables, False), (neighbours_the_other_way, True),
    )
}  # fmt: skip
"""The forms, and whether they turn neighbours."""

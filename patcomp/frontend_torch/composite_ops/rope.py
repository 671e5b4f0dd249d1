"""Rotary position embedding as a module."""

from __future__ import annotations

import torch
from torch import nn

from patcomp.frontend_torch.composite_ops.version import Version


class RoPE(nn.Module):
    """Rotates pairs of features by angles that grow with the position (Su et al. 2021, arXiv:2104.09864).

    y1 = cos * x1 - sin * x2, y2 = sin * x1 + cos * x2, where x1 and x2 are the two halves of the first
    `dims` features, or their even and odd ones if `interleaved`; features from `dims` on are passed on.

    Args:
        scale: factor of the frequencies.
        base: the frequencies are 1 / base ** (i / half) for i < half = dims / 2.
        dims: how many features are rotated, an even number; all by default.
        interleaved: pairs are neighbours instead of half the features apart.
        _use_hf_impl: round the frequencies to the input's dtype, as models of Hugging Face in half precision do.
    """

    def __init__(
        self,
        scale: float = 1.0,
        base: float = 1e4,
        dims: int | None = None,
        interleaved: bool = False,
        _use_hf_impl: bool = False,
    ):
        super().__init__()
        self.version = Version.v1
        self.scale = float(scale)
        self.base = float(base)
        self.dims = dims
        self.interleaved = interleaved
        self._use_hf_impl = _use_hf_impl

    def forward(
        self,
        input: torch.Tensor,
        cos: torch.Tensor | None = None,
        sin: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        freqs: torch.Tensor | None = None,
        offset: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """The rotated input, in its own shape and dtype.

        Args:
            input: floats `[batch, heads, sequence, features]`.
            cos, sin: the rotations, `[..., sequence, half]`; the arguments that follow are then not used.
            position_ids: `[batch, sequence]`, the position of each element.
            freqs: float32 `[half]` instead of those computed from `base`; `scale` applies to them too.
            offset: the position of the first element, a number or a tensor of shape `[]` or `[batch]`;
                0 by default, not used if there are `position_ids`.

        Raises:
            RuntimeError: the number of rotated features is odd or below 2, or `freqs` is not float32.
            ValueError: one of `cos` and `sin` is given without the other.
        """
        features = input.shape[-1]
        rotated = self.dims if self.dims is not None and self.dims < features else features
        torch._check(rotated % 2 == 0, lambda: f"RoPE rotates pairs of features, so dims must be even, got {rotated}")
        torch._check(rotated >= 2, lambda: f"RoPE needs dims of 2 at least, got {rotated}")
        if (cos is None) != (sin is None):
            raise ValueError("RoPE needs cos and sin together")
        if cos is None or sin is None:
            cos, sin = self._rotations(input, rotated // 2, position_ids, freqs, offset)
        if self.interleaved:
            first, second = input[..., 0:rotated:2], input[..., 1:rotated:2]
        else:
            first, second = input[..., : rotated // 2], input[..., rotated // 2 : rotated]
        parts = (cos * first - sin * second, sin * first + cos * second)
        if self.interleaved:
            result = torch.stack(parts, dim=-1).reshape(*input.shape[:-1], rotated)
        else:
            result = torch.cat(parts, dim=-1)
        return result if rotated == features else torch.cat([result, input[..., rotated:]], dim=-1)

    def _rotations(
        self,
        input: torch.Tensor,
        half: int,
        position_ids: torch.Tensor | None,
        freqs: torch.Tensor | None,
        offset: torch.Tensor | int | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if position_ids is not None:
            positions = position_ids.unsqueeze(1)
        else:
            positions = torch.arange(input.shape[-2], device=input.device)
            if isinstance(offset, torch.Tensor):
                positions = offset.unsqueeze(-1).unsqueeze(-1) + positions  # one row for all heads
            elif offset is not None:
                positions = positions + offset
        if freqs is None:
            exponents = torch.arange(half, dtype=torch.float32, device=input.device) / half
            freqs = 1.0 / self.base**exponents
        torch._check(freqs.dtype == torch.float32, lambda: f"freqs must be float32, got {freqs.dtype}")
        if self._use_hf_impl:
            freqs = freqs.to(input.dtype).to(torch.float32)
        angles = positions.to(torch.float32).unsqueeze(-1) * (freqs * self.scale)
        return torch.cos(angles).to(input.dtype), torch.sin(angles).to(input.dtype)

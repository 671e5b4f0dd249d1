"""Example recordings."""

from __future__ import annotations

import torch
from torch import Tensor


def samples(count: int) -> Tensor:
    """A sound that has all frequencies and becomes less loud, (1, count), of float32."""
    noise = torch.randn(count, generator=torch.Generator().manual_seed(0))
    fading = torch.linspace(0, -3, count).exp()
    return (0.3 * noise * fading)[None]

"""Root-mean-square normalization as a module."""

from __future__ import annotations

import torch
from torch import nn

from patcomp.frontend_torch.composite_ops.version import Version


class RMSNormImpl(nn.Module):
    """x * rsqrt(mean(x ** 2) + eps) * scale over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467).

    The mean is computed in float32. A float32 scale of a half precision input is applied before rounding
    to the input's dtype, any other scale after it.

    Args:
        eps: added to the mean square.
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.version = Version.v1
        self.eps = eps
        self.axes = -1

    def forward(self, input: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """The normalized input, in its own shape and dtype.

        Args:
            input: floats `[..., dim]`.
            scale: `[dim]`, or any shape that broadcasts to the input's.
        """
        wide = input.to(torch.float32)
        normal = wide * torch.rsqrt(wide.pow(2).mean(self.axes, keepdim=True) + self.eps)
        if scale.dtype == torch.float32:
            return (normal * scale).to(input.dtype)
        return normal.to(input.dtype) * scale


class RMSNorm(nn.Module):
    """An `RMSNormImpl` with a learnable scale.

    Args:
        dim: size of the last axis.
        eps: added to the mean square.
        n_heads: a scale for each head of inputs `[batch, n_heads, sequence, dim]`; one for all by default.
    """

    def __init__(self, dim: int, eps: float = 1e-5, n_heads: int | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim if n_heads is None else (n_heads, 1, dim)))
        self.rmsnorm_impl = RMSNormImpl(eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized and scaled input."""
        return self.rmsnorm_impl(x, self.weight)

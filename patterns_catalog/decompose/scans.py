"""Scans that the runtime has no combiner for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example


@decomposition("aten.logcumsumexp", examples=[example("2x9xf32", 1), example("3x2xf16", 0), example("f32", 0)])
def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x))) without overflow, in float32 for half precision.

    By doubling: after step k each element has 2 ** k neighbours in it (Hillis, Steele: Data parallel algorithms). The
    number of steps follows from the size; with a dynamic one, each element sums all before it.
    """
    if self.dim() == 0:
        return self.clone()
    half = self.dtype in (torch.float16, torch.bfloat16)
    total = self.float() if half else self
    size, distance = self.size(dim), 1
    if isinstance(size, torch.SymInt):
        positions = torch.arange(size, device=self.device)
        before = positions[:, None] >= positions
        terms = torch.where(before, total.movedim(dim, -1).unsqueeze(-2), -math.inf)
        return torch.logsumexp(terms, -1).movedim(-1, dim).to(self.dtype)
    while distance < size:
        rest = total.narrow(dim, distance, size - distance)
        joined = torch.logaddexp(rest, total.narrow(dim, 0, size - distance))
        total = torch.cat([total.narrow(dim, 0, distance), joined], dim)
        distance *= 2
    return total.to(self.dtype)

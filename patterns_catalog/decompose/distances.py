"""Distances between all pairs of vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from patcomp.patterns.aspects import SPECIAL

_NOT_FINITE = dict.fromkeys(SPECIAL, "eager's maximum takes no notice of NaN, and other norms do")


@decomposition("aten._cdist_forward", unspecified=_NOT_FINITE, examples=[
    example("2x3x4xf32", "2x5x4xf32", 2.0, None), example("3x4xf32", "5x4xf32", 0.0, None),
    example("3x4xf32", "5x4xf32", 1.5, 2), example("3x4xf32", "5x4xf32", math.inf, None),
])  # fmt: skip
def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    "the p-norm of the difference of each pair; the mode says how PyTorch computes it, here always by differences"
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@decomposition(
    "aten._pdist_forward",
    unspecified=_NOT_FINITE,
    examples=[example("4x3xf32"), example("4x3xf32", 3.0), example("1x3xf32", 1.0)],
)
def pdist(self: Tensor, p: float = 2) -> Tensor:
    "the p-norm of the difference of each pair of rows, the first before the second"
    if not self.is_floating_point() or self.dim() != 2:
        raise Rejected("pdist needs a matrix of floats; cast or reshape the input")
    rows = self.size(0)
    place = torch.arange(rows * rows, device=self.device)
    above = place % rows > place // rows
    # the places above the diagonal of the matrix of all pairs, in their order
    chosen = torch.where(above, place, rows * rows).sort()[0][: rows * (rows - 1) // 2]
    return _norm(self[chosen // rows] - self[chosen % rows], p)


def _norm(difference: Tensor, p: float) -> Tensor:
    """The p-norm of the last axis, 0 of no elements; p = 0 counts the elements that differ."""
    size = difference.abs()
    if difference.size(-1) == 0:
        return size.sum(-1, dtype=size.dtype)
    if p == 0:
        return torch.where(size.isnan(), size, (size != 0).to(size.dtype)).sum(-1, dtype=size.dtype)
    if p == 1:
        return size.sum(-1, dtype=size.dtype)
    if p == 2:
        return (size * size).sum(-1).sqrt()
    if p == math.inf:
        return size.amax(-1)
    return size.pow(p).sum(-1).pow(1 / p)

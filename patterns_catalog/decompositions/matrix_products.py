"""Sums of matrix products."""

from __future__ import annotations

from torch import Tensor

from patcomp.patterns import decomposition, example


@decomposition("aten.addbmm", examples=[example("3x5xf32", "2x3x4xf32", "2x4x5xf32", beta=0.5, alpha=2.0)])
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    "beta * self + alpha * the sum of the products of all pairs of matrices"
    product = alpha * (batch1 @ batch2).sum(0)
    return product if beta == 0 else beta * self + product  # by the schema, NaN in self times 0 does not count

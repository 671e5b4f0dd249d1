"""Matrix products with gathered operands as a module."""

from __future__ import annotations

import torch
from torch import nn

from patcomp.frontend_torch.composite_ops.version import Version


class GatherMM(nn.Module):
    """lhs[lhs_indices] @ rhs[rhs_indices]: products with matrices chosen by index, as experts are.

        experts = GatherMM()
        experts(x, weights, rhs_indices=chosen)     # [B, T, 1, 1, D], [E, D, H], [B, T, K] -> [B, T, K, 1, H]

    Args:
        num_batch_axes: how many axes stand before the one that is indexed, in either operand.
    """

    def __init__(self, num_batch_axes: int = 0):
        super().__init__()
        self.version = Version.v1
        self.num_batch_axes = num_batch_axes

    def forward(
        self,
        lhs: torch.Tensor,
        rhs: torch.Tensor,
        lhs_indices: torch.Tensor | None = None,
        rhs_indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The product, which broadcasts leading axes as `torch.matmul` does.

        Args:
            lhs: floats `[*batch, n, ..., rows, k]`, or any shape that `matmul` takes where it is not indexed.
            rhs: floats `[*batch, m, ..., k, columns]`.
            lhs_indices: integers below n, of any shape, which takes the place of n.
            rhs_indices: integers below m, of any shape, which takes the place of m.

        Raises:
            ValueError: an indexed operand has no axis after its `num_batch_axes`.
            IndexError: an index is out of range.
        """
        return torch.matmul(self._gathered(lhs, lhs_indices, "lhs"), self._gathered(rhs, rhs_indices, "rhs"))

    def _gathered(self, x: torch.Tensor, indices: torch.Tensor | None, name: str) -> torch.Tensor:
        if indices is None:
            return x
        axis = self.num_batch_axes
        if not 0 <= axis < x.dim():
            raise ValueError(f"{name} of rank {x.dim()} has no axis {axis} for its indices")
        taken = torch.index_select(x, axis, indices.to(torch.int32).flatten())
        return taken.view(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

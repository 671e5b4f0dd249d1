"""Averages over windows in one dimension, as those in two."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example


@decomposition("aten.adaptive_avg_pool1d", examples=[example("2x3x8xf32", [1]), example("3x8xf32", [5])])
def adaptive_avg_pool1d(self: Tensor, output_size: list[int]) -> Tensor:
    "`_adaptive_avg_pool2d` of rows; PyTorch's own form writes strides in place"
    rows = torch.ops.aten._adaptive_avg_pool2d(self.unsqueeze(-2), [1, *output_size])
    return rows.squeeze(-2)

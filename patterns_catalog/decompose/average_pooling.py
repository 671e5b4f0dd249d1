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


@decomposition("aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d", examples=[
    example("2x3x4x6xf32", [1, 1]), example("3x4x6xf32", [2, 3]),
    example("2x3x4x6x2xf32", [1, 1, 1], op="aten.adaptive_avg_pool3d"),
    example("1x2x4x6x4xf32", [2, 3, 1], op="aten.adaptive_avg_pool3d"),
])  # fmt: skip
def adaptive_avg_pool(self: Tensor, output_size: list[int]) -> Tensor:
    "a mean over the whole image or volume; PyTorch's own form ends in as_strided if the channels are last in memory"
    dims = len(output_size)
    if all(size == 1 for size in output_size):
        return self.mean(list(range(-dims, 0)), keepdim=True)
    pooled = torch.ops.aten._adaptive_avg_pool2d if dims == 2 else torch.ops.aten._adaptive_avg_pool3d
    return pooled(self, output_size)

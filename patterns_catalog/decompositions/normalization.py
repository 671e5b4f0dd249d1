"""Norms, down to the ops that the composites are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example


@decomposition(
    "aten.batch_norm",
    unspecified={"infinities and zeros": "eager folds statistics and weights"},
    examples=[example("2x3x4xf32", "3xf32", "3xf32", "3xf32", "3xf32[0.5,2]", False, 0.1, 1e-5, False)],
)
def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    "the inference form, kept whole for the batch_norm composite; otherwise the statistics of the input itself"
    aten = torch.ops.aten
    if training:
        return aten.native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)[0]
    return aten._native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum, eps)[0]

"""Norms, down to the ops that the composites are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import FurtherResults, Rejected, decomposition, example


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


@decomposition(
    "aten._weight_norm_interface",
    unspecified={"limits of 16 bits": FurtherResults("the norm of float16 is float32 in eager, not in an export")},
    examples=[example("3xf32", "3xf32"), example("4x2x3xf32", "4x1x1xf32"), example("2x3xf32", "1x3xf32", 1)],
)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """v * g / norm(v), with a norm for each index along a dimension.

    PyTorch's decomposition takes the norm of all of a vector, because it reduces no dimension of it.
    """
    kept = [size if axis == dim else 1 for axis, size in enumerate(v.shape)]
    if list(g.shape) != kept:
        raise Rejected(f"g must have the shape {kept}, a number for each index along dimension {dim} of v")
    others = [axis for axis in range(v.dim()) if axis != dim]
    wide = v.float() if v.dtype in (torch.float16, torch.bfloat16) else v  # the quotient is beyond 16 bits
    norm = wide.abs() if not others else wide.norm(2, others, keepdim=True)
    return (wide * (g.to(wide.dtype) / norm)).to(v.dtype), norm.to(v.dtype) if v.dtype == torch.float16 else norm

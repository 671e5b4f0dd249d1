"""Activations whose decompositions by PyTorch compute other numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from patterns_catalog.decompose.promotion import in_floats


@decomposition("aten.threshold", examples=[
    example("2x3xf32", 0.1, 20.0), example("6xsi32[-3,3]", -1.5, 2), example("4xsi64", 2.9, -7.9),
])  # fmt: skip
def threshold(self: Tensor, threshold: float, value: float) -> Tensor:
    """`value` where `self` is at most `threshold`.

    Eager PyTorch rounds both to the type of `self`, for integers toward zero; its decomposition compares and selects in
    float32.
    """
    if not self.is_floating_point():
        threshold, value = int(threshold), int(value)
    return torch.where(self <= threshold, value, self)


@decomposition("aten.elu", examples=[
    example("2x3xf32"), example("2x3xf32", 0.5, 2.0, 3.0), example("2x3xf32", float("inf")),
])  # fmt: skip
def elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """scale * self, or scale * alpha * (exp(input_scale * self) - 1) for negative elements.

    PyTorch's decomposition takes zero for negative, which is NaN for an infinite alpha.
    """
    (x,), result = in_floats(self)
    return torch.where(x < 0, torch.expm1(x * input_scale) * (alpha * scale), x * scale).to(result)


@decomposition("aten.celu", examples=[example("2x3xf32", 1.5), example("2x3xf32", float("-inf"))])
def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
    "an elu whose slope at 0 is 1 for any alpha"
    return torch.ops.aten.elu(self, alpha, 1.0, 1.0 / alpha)

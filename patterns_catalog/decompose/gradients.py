"""Gradients, for models that differentiate inside, where PyTorch's decompositions depart from the ops."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from patterns_catalog.decompose.promotion import in_floats


def _check_types(*tensors: Tensor) -> None:
    """Check that a gradient is of one float type: for others, PyTorch's kernels and decompositions give other types.

    Raises:
        Rejected: it is not.
    """
    if len({tensor.dtype for tensor in tensors}) > 1 or not tensors[0].is_floating_point():
        raise Rejected("a gradient of integers, or of tensors of several types; cast them to one float type")


@decomposition("aten.threshold_backward", examples=[example("2x3xf32", "2x3xf32", 0.1)])
def threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Tensor:
    "grad_output where self is greater than the threshold, otherwise 0"
    _check_types(grad_output, self)
    return torch.where(self <= threshold, 0, grad_output)


@decomposition("aten.mse_loss_backward", examples=[example("f32", "2x3xf32", "2x3xf32", 1)])
def mse_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    "2 * (self - target) * grad_output, divided by the number of elements for their mean"
    _check_types(grad_output, self, target)
    return (2 / self.numel() if reduction == 1 else 2) * (self - target) * grad_output


@decomposition("aten.mish_backward", examples=[example("2x3xf32", "2x3xf32")])
def mish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    "grad_output * (t + x * sigmoid(x) * (1 - t * t)) with t = tanh(softplus(x))"
    _check_types(grad_output, self)
    (slope, x), result = in_floats(grad_output, self)
    t = torch.nn.functional.softplus(x).tanh()
    return (slope * (t + x * x.sigmoid() * (1 - t * t))).to(result)


@decomposition("aten.soft_margin_loss_backward", examples=[
    example("f32", "2x3xf32", "2x3xf32[-1,1]", 1), example("f32", "2x3xf32", "2x3xsi64[-1,1]", 2),
])  # fmt: skip
def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """-target * z / (1 + z) * grad_output with z = exp(-target * self), divided by the number of elements for a mean.

    It is NaN where z is infinite, as in eager PyTorch, unlike in its decomposition.
    """
    _check_types(grad_output, self, *([target] if target.is_floating_point() else []))
    z = torch.exp(-target * self)
    return target * z * (-1 / self.numel() if reduction == 1 else -1) / (z + 1) * grad_output


@decomposition("aten.rrelu_with_noise_backward", examples=[
    example("2x3xf32", "2x3xf32", "2x3xf32[0,1]", 0.1, 0.3, True, False),
    example("2x3xf32", "2x3xf32", "2x3xf32[0,1]", 0.1, 0.3, False, False),
])  # fmt: skip
def rrelu_with_noise_backward(
    grad_output: Tensor, self: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool
) -> Tensor:
    "noise * grad_output in training, otherwise the gradient of a leaky_relu with the mean slope"
    _check_types(grad_output, self, noise)
    if training:
        return noise * grad_output
    return torch.ops.aten.leaky_relu_backward(grad_output, self, (lower + upper) / 2, self_is_result)

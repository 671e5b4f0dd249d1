"""Losses that PyTorch has as ops of its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from patcomp.patterns import Rejected, decomposition, example

_IGNORE = -100


@decomposition("torch_nn._linear_cross_entropy_batch_chunked", examples=[
    example(
        "4x3xf32", "5x3xf32", "4xsi64[0,4]", "5xf32", "5xf32[0,1]", "mean", _IGNORE, 0.0, 2, "accurate", "f32", False,
        True, True, True,
    ),
])  # fmt: skip
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None, weight: Tensor | None,
    reduction: str, ignore_index: int, label_smoothing: float, batch_chunk_size: int, acc_policy: str,
    acc_dtype: torch.dtype, allow_retain_graph: bool, compute_input_grad: bool, compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    "cross_entropy(linear(input)) with its gradients, not in chunks"
    if label_smoothing:
        raise Rejected("label smoothing is not supported in chunks, as in PyTorch")
    logits = _logits(input, linear_weight, linear_bias, acc_dtype)
    weights = _weights(target, weight, ignore_index, logits)
    chosen = torch.arange(logits.size(1), device=target.device) == target.unsqueeze(1)
    # the gradient by the logits
    slope = weights.unsqueeze(1) * (logits.softmax(1) - chosen.to(acc_dtype))
    loss = _losses(logits, target, weights, ignore_index).sum()
    if reduction == "mean":
        slope, loss = slope / weights.sum(), loss / weights.sum()
    none = input.new_zeros
    return (
        loss.to(input.dtype),
        (slope @ linear_weight.to(acc_dtype)).to(input.dtype) if compute_input_grad else none(0, 0),
        (slope.T @ input.to(acc_dtype)).to(input.dtype) if compute_linear_weight_grad else none(0, 0),
        slope.sum(0).to(input.dtype) if compute_linear_bias_grad else none(0),
    )


@decomposition("torch_nn._linear_cross_entropy_batch_chunked_no_reduction", examples=[
    example("4x3xf32", "5x3xf32", "4xsi64[0,4]", None, None, _IGNORE, 2, "accurate", "f32"),
])  # fmt: skip
def linear_cross_entropy_of_each(
    input: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None, weight: Tensor | None,
    ignore_index: int, batch_chunk_size: int, acc_policy: str, acc_dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    "cross_entropy(linear(input)) of each sample, not in chunks"
    logits = _logits(input, linear_weight, linear_bias, acc_dtype)
    weights = _weights(target, weight, ignore_index, logits)
    return _losses(logits, target, weights, ignore_index).to(input.dtype)


def _logits(input: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    return linear(input.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def _weights(target: Tensor, weight: Tensor | None, ignore_index: int, logits: Tensor) -> Tensor:
    """The weight of each sample: that of its class, 0 where the class is ignored."""
    if target.dim() != 1 or (weight is not None and weight.dim() != 1):
        raise Rejected("the targets and the weights of the classes must have one dimension")
    counted = target != ignore_index
    if weight is None:
        return counted.to(logits.dtype)
    return torch.where(counted, weight.to(logits.dtype)[torch.where(counted, target, 0)], 0)


def _losses(logits: Tensor, target: Tensor, weights: Tensor, ignore_index: int) -> Tensor:
    """-log softmax of each sample at its class, times its weight; 0 for the ignored class."""
    counted = target != ignore_index
    place = torch.where(counted, target, 0).unsqueeze(1)
    return torch.where(counted, -logits.log_softmax(1).gather(1, place).squeeze(1) * weights, 0)


@decomposition(
    "aten.multilabel_margin_loss_forward",
    examples=[
        example("2x4xf32", torch.tensor([[3, 0, -1, 1], [-1, 2, 0, 0]]), 1),
        example("4xf32", torch.tensor([2, 2, 0, 1]), 0),
        example("3x2xf32", torch.tensor([[1, -1], [0, 1], [-1, -1]]), 2),
    ],
)
def multilabel_margin_loss(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """max(0, 1 - x[target] + x[other]) / classes, summed over the targets of a sample and all classes that are none.

    The targets of a sample are those before its first negative one; PyTorch's decomposition also adds the terms of the
    targets after it. NaN adds nothing, as in eager PyTorch.
    """
    x, targets = torch.atleast_2d(self), torch.atleast_2d(target)
    classes = x.size(1)
    counts = (targets < 0).to(torch.int32).cumsum(1) == 0
    chosen = (targets.unsqueeze(2) == torch.arange(classes, device=target.device)) & counts.unsqueeze(2)
    is_target = chosen.any(1)
    margin = 1 - x.gather(1, torch.where(counts, targets, 0)).unsqueeze(2) + x.unsqueeze(1)
    margin = torch.where((margin > 0) & counts.unsqueeze(2) & ~is_target.unsqueeze(1), margin, 0)
    losses = margin.sum((1, 2)) / classes
    if reduction:
        losses = losses.mean() if reduction == 1 else losses.sum()
    elif self.dim() < 2:
        losses = losses.squeeze(0)
    return losses.to(self.dtype), is_target.to(self.dtype).reshape(target.shape)


@decomposition("aten.multi_margin_loss", examples=[
    example("3x4xf32", "3xsi64[0,3]"), example("4xf32", "si64[0,3]", 2, 0.5, "4xf32[0,1]", 0),
    example(torch.tensor([[torch.nan, 1.0, 0.5]]), "1xsi64[1,2]", 1, 1.0, None, 2),
])  # fmt: skip
def multi_margin_loss(
    self: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """max(0, margin - x[target] + x[other]) ** p / classes, summed over the other classes of a sample.

    NaN adds nothing, as in eager PyTorch, unlike in its decomposition.
    """
    x, place = torch.atleast_2d(self), target.reshape(-1, 1)
    classes = x.size(1)
    apart = margin - x.gather(1, place) + x
    terms = apart if p == 1 else apart * apart
    if weight is not None:
        terms = terms * weight[place]
    others = torch.arange(classes, device=target.device) != place
    losses = torch.where((apart > 0) & others, terms, 0).sum(1) / classes
    if reduction:
        return losses.mean() if reduction == 1 else losses.sum()
    return losses.reshape(target.shape)

"""Norms."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.rows import MICROSOFT, NodeCall, onnx_op


@onnx_op("BatchNormalization")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Tensor:
    if training_mode or not spatial:
        raise TypeError("it is for training, or not over channels; export the model in eval mode")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


@onnx_op("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


@onnx_op("GroupNormalization")
def group_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    node: NodeCall,
) -> Tensor:
    if node.opset < 21:  # a scale for each group, not for each channel
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, num_groups, scale, bias, epsilon)


def _is_over(weight: Tensor | None, x: Tensor, axis: int) -> bool:
    return weight is None or list(weight.shape) == list(x.shape[axis:])


@onnx_op("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    node: NodeCall,
) -> Any:
    axis = axis % x.dim()
    if not (_is_over(scale, x, axis) and _is_over(bias, x, axis)):
        plain = F.layer_norm(x, x.shape[axis:], None, None, epsilon)
        plain = plain if scale is None else plain * scale
        result = plain if bias is None else plain + bias
    else:
        result = F.layer_norm(x, x.shape[axis:], scale, bias, epsilon)
    if node.outputs == 1:
        return result
    axes = list(range(axis, x.dim()))
    mean = x.mean(axes, keepdim=True)
    return result, mean, torch.rsqrt((x - mean).square().mean(axes, keepdim=True) + epsilon)


@onnx_op("RMSNormalization")
@onnx_op("SimplifiedLayerNormalization")
@onnx_op("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    return F.rms_norm(x, x.shape[axis % x.dim() :], scale, epsilon)


@onnx_op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
    node: NodeCall,
) -> Any:
    whole = x + skip if bias is None else x + skip + bias
    normal = F.layer_norm(whole, whole.shape[-1:], gamma, beta, epsilon)
    return (normal, None, None, whole)[: node.outputs]


@onnx_op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-5, node: NodeCall
) -> Any:
    whole = x + skip if bias is None else x + skip + bias
    return (F.rms_norm(whole, whole.shape[-1:], gamma, epsilon), None, None, whole)[: node.outputs]


@onnx_op("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, True)
    return x / torch.where(norm == 0, 1.0, norm)


@onnx_op("LRN")
def local_response_norm(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    if size % 2 == 0:
        raise TypeError(f"its size {size} is even, and PyTorch's window is another one")
    return F.local_response_norm(x, size, alpha, beta, bias)

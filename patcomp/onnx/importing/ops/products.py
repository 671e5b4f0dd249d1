"""Matrix products, convolutions and pools."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.rows import MICROSOFT, Ints, NodeCall, onnx_op

_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
_MAX_POOLS = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_AVERAGE_POOLS = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)

onnx_op("MatMul")(lambda x, y: torch.matmul(x, y))


@onnx_op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Tensor:
    a = a.t() if transA else a
    if alpha == 1 and beta == 1 and transB and (c is None or c.dim() == 1):
        return F.linear(a, b, c)
    product = torch.mm(a, b.t() if transB else b)
    product = product if alpha == 1 else alpha * product
    return product if c is None or beta == 0 else product + (c if beta == 1 else beta * c)


@onnx_op("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Tensor:
    product = torch.matmul(a.mT if transA else a, b.mT if transB else b)
    return product if alpha == 1 else alpha * product


@onnx_op("Einsum")
def einsum(*x: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *x)


def _padded(x: Tensor, pads: list[int], value: float = 0.0) -> Tensor:
    """Pads of ONNX: those in front of each axis, then those behind."""
    rank = len(pads) // 2
    return F.pad(x, [n for axis in reversed(range(rank)) for n in (pads[axis], pads[rank + axis])], "constant", value)


def _pads(
    x: Tensor, kernel: list[int], strides: list[int], dilations: list[int], pads: Ints | None, auto_pad: str
) -> list[int]:
    """The pads that a node asks for, in front of each axis, then behind."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", ""):
        return list(pads or [0] * 2 * rank)
    if auto_pad == "VALID":
        return [0] * 2 * rank
    front, behind = [], []
    for size, width, stride, dilation in zip(x.shape[-rank:], kernel, strides, dilations, strict=True):
        whole = max((-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size, 0)
        small = whole // 2
        front.append(whole - small if auto_pad == "SAME_LOWER" else small)
        behind.append(small if auto_pad == "SAME_LOWER" else whole - small)
    return front + behind


@onnx_op("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    rank = weight.dim() - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = _pads(x, list(weight.shape[2:]), strides, dilations, pads, auto_pad)
    if pads[:rank] != pads[rank:]:
        x, pads = _padded(x, pads), [0] * 2 * rank
    return _CONVOLUTIONS[rank - 1](x, weight, bias, strides, pads[:rank], dilations, group)


@onnx_op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    """The transposed convolution without pads, of which the pads are cut off where they differ."""
    if output_shape is not None or auto_pad not in ("NOTSET", "VALID"):
        raise TypeError("output_shape and auto_pad are not supported; give pads")
    rank = weight.dim() - 2
    strides, dilations, extra = strides or [1] * rank, dilations or [1] * rank, output_padding or [0] * rank
    pads = pads or [0] * 2 * rank
    transposed = _TRANSPOSED[rank - 1]
    if pads[:rank] == pads[rank:]:
        return transposed(x, weight, bias, strides, pads[:rank], extra, group, dilations)
    whole = transposed(x, weight, bias, strides, [0] * rank, extra, group, dilations)
    return _padded(whole, [-n for n in pads])


def _pools_with(pads: list[int], kernel: Ints) -> bool:
    """Whether PyTorch's pools take the pads: equal on both sides, and at most half of the kernel."""
    rank = len(kernel)
    return pads[:rank] == pads[rank:] and all(2 * pad <= width for pad, width in zip(pads, kernel, strict=False))


@onnx_op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    ceil_mode: int = 0,
    storage_order: int = 0,
    auto_pad: str = "NOTSET",
    node: NodeCall,
) -> Tensor:
    if node.outputs > 1:
        raise TypeError("its second output, the indices, is not supported")
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = _pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    if not _pools_with(pads, kernel_shape):
        x, pads = _padded(x, pads, float("-inf")), [0] * 2 * rank
    return _MAX_POOLS[rank - 1](x, kernel_shape, strides, pads[:rank], dilations, bool(ceil_mode))


@onnx_op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    auto_pad: str = "NOTSET",
) -> Tensor:
    rank = len(kernel_shape)
    strides = strides or [1] * rank
    if dilations is not None and set(dilations) != {1}:
        raise TypeError("its dilations are not supported")
    pads = _pads(x, kernel_shape, strides, [1] * rank, pads, auto_pad)
    pool = _AVERAGE_POOLS[rank - 1]
    if not _pools_with(pads, kernel_shape):
        sums = pool(_padded(x, pads), kernel_shape, strides, 0, bool(ceil_mode))
        if count_include_pad:
            return sums
        return sums / pool(_padded(torch.ones_like(x), pads), kernel_shape, strides, 0, bool(ceil_mode))
    return pool(x, kernel_shape, strides, pads[:rank], bool(ceil_mode), bool(count_include_pad))


def _global(function: Any) -> Any:
    return lambda x: function(x, list(range(2, x.dim())), True)


onnx_op("GlobalAveragePool")(_global(torch.mean))
onnx_op("GlobalMaxPool")(_global(torch.amax))

"""Quantized tensors. Weights stay integers: the ops of PyTorch's quantizers become Core AI's own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.evaluate.eager import overload_of
from patcomp.onnx.importing.ops.products import conv, gemm
from patcomp.onnx.importing.ops.types import torch_type
from patcomp.onnx.importing.rows import MICROSOFT, OWN_FORMS, Ints, NodeCall, onnx_op
from patcomp.onnx.importing.values import KnownArray

_FOUR_BITS = torch.uint4  # type: ignore[attr-defined]  # PyTorch's stubs lack it
_LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-32768, 32767), torch.uint16: (0, 65535)}
"""The range of each element type that floats are rounded to."""


@onnx_op("DequantizeLinear")
def dequantize(
    x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    """(x - zero point) * scale: for the whole tensor, for the slices of an axis, or for blocks of an axis."""
    tensor = x.tensor() if isinstance(x, KnownArray) else x
    if block_size:
        return _of_blocks(tensor, _tensor(scale), _tensor(zero_point), axis, block_size)
    dtype = torch_type(output_dtype) if output_dtype else _type_of(scale)
    limits = _LIMITS.get(tensor.dtype)
    if limits is None or dtype != torch.float32:
        return _by_arithmetic(tensor, scale, zero_point, axis).to(dtype)
    if _is_one(scale):
        numbers = float(_number(scale)), int(_number(zero_point) or 0), *limits, tensor.dtype
        return overload_of("quantized_decomposed.dequantize_per_tensor")(tensor, *numbers)
    points = _points(zero_point, _tensor(scale))
    per_channel = overload_of("quantized_decomposed.dequantize_per_channel")
    return per_channel(tensor, _tensor(scale), points, axis % tensor.dim(), *limits, tensor.dtype)


@onnx_op("QuantizeLinear")
def quantize(
    x: Tensor,
    scale: Any,
    zero_point: Any = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Tensor:
    """round(x / scale) + zero point, between the limits of the element type."""
    dtype = torch_type(output_dtype) if output_dtype else torch.uint8 if zero_point is None else _type_of(zero_point)
    if dtype not in _LIMITS or block_size:
        raise TypeError("only whole tensors and slices are quantized, to 8 or 16 bits")
    if _is_one(scale):
        numbers = float(_number(scale)), int(_number(zero_point) or 0), *_LIMITS[dtype], dtype
        return overload_of("quantized_decomposed.quantize_per_tensor")(x, *numbers)
    points = _points(zero_point, _tensor(scale))
    per_channel = overload_of("quantized_decomposed.quantize_per_channel")
    return per_channel(x, _tensor(scale), points, axis % x.dim(), *_LIMITS[dtype], dtype)


def _is_one(scale: Any) -> bool:
    """Whether it is a known scale of the whole tensor.

    Raises:
        TypeError: it is computed from data.
    """
    if isinstance(scale, Tensor) and scale.dim() == 0:
        raise TypeError("its scale is computed from data")
    return isinstance(scale, KnownArray) and scale.is_one


def _number(value: Any) -> Any:
    return None if value is None else value.number


def _tensor(value: Any) -> Any:
    return value.tensor() if isinstance(value, KnownArray) else value


def _type_of(value: Any) -> torch.dtype:
    return value.dtype


def _points(zero_point: Any, scale: Tensor) -> Tensor:
    return torch.zeros(scale.shape, dtype=torch.int64) if zero_point is None else _tensor(zero_point).long()


def _by_arithmetic(x: Tensor, scale: Any, zero_point: Any, axis: int) -> Tensor:
    scale, zero_point = _tensor(scale), _tensor(zero_point)
    shape = [-1 if each == axis % max(x.dim(), 1) else 1 for each in range(x.dim())] if scale.dim() == 1 else []
    scale = scale.reshape(shape) if scale.numel() > 1 else scale.reshape([])
    if zero_point is None:
        return x.to(scale.dtype) * scale
    zero_point = zero_point.reshape(shape) if zero_point.numel() > 1 else zero_point.reshape([])
    return (x.to(scale.dtype) - zero_point.to(scale.dtype)) * scale


def _of_blocks(x: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, size: int) -> Tensor:
    """Each block of `size` elements along the axis has a scale."""
    axis = axis % x.dim()
    blocks = x.unflatten(axis, (-1, size)).to(scale.dtype)
    moved = blocks if zero_point is None else blocks - zero_point.unsqueeze(axis + 1).to(scale.dtype)
    return (moved * scale.unsqueeze(axis + 1)).flatten(axis, axis + 1)


# ---- ops on integers: their numbers are exact in floats up to 2**24, so products are of floats ----------


@onnx_op("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """The product in 32-bit integers."""
    return torch.matmul(_centered(a, a_zero, -2), _centered(b, b_zero, -1))


def _centered(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    x = x.to(torch.int32)
    if zero_point is None:
        return x
    point = zero_point.to(torch.int32)
    if point.dim() == 1 and point.numel() > 1:
        point = point.unsqueeze(-1 if axis == -2 else 0)
    return x - (point.reshape([]) if point.numel() == 1 else point)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize(x: Tensor) -> Any:
    """A tensor in bytes, with the scale and zero point of its own range, extended to include 0."""
    least, most = torch.clamp(x.amin(), max=0), torch.clamp(x.amax(), min=0)
    scale = (most - least) / 255
    point = torch.clamp(torch.round(-least / scale), 0, 255)
    rounded = torch.clamp(torch.round(x / scale) + point, 0, 255)
    return rounded.to(torch.uint8), scale, point.to(torch.uint8)


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    a: Tensor, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any
) -> Tensor:
    """The product of what both stand for, quantized."""
    product = torch.matmul(dequantize(a, a_scale, a_zero, axis=-2), dequantize(b, b_scale, b_zero, axis=-1))
    return quantize(product, scale, zero)


@onnx_op("QLinearConv")
def qlinear_conv(
    x: Tensor,
    x_scale: Any,
    x_zero: Any,
    weight: Any,
    weight_scale: Any,
    weight_zero: Any,
    scale: Any,
    zero: Any,
    bias: Tensor | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    pads: Ints | None = None,
    dilations: Ints | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:
    """The convolution of what its operands stand for, quantized; the bias is in steps of both scales' product."""
    value, kernel = dequantize(x, x_scale, x_zero), dequantize(weight, weight_scale, weight_zero, axis=0)
    if bias is not None:
        bias = bias.to(value.dtype) * (_tensor(x_scale) * _tensor(weight_scale)).reshape(-1)
    result = conv(value, kernel, bias, strides=strides, pads=pads, dilations=dilations, group=group, auto_pad=auto_pad)
    return quantize(result, scale, zero)


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_of_few_bits(
    a: Tensor,
    b: Any,
    scales: Any,
    zero_points: Any = None,
    group_index: Any = None,
    bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803
    N: int,  # noqa: N803
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    node: NodeCall,
) -> Tensor:
    """The product with a transposed weight of 4 or 8 bits, packed from the lowest bits, with a scale for each block."""
    if bits not in (4, 8) or group_index is not None:
        raise TypeError(f"weights of {bits} bits, or with an index of groups, are not supported")
    blocks = -(-K // block_size)
    weight = _unpacked(_tensor(b).reshape(N, blocks, -1), bits)
    scales = _tensor(scales).reshape(N, blocks, 1)
    if zero_points is None:
        centered = weight.to(scales.dtype) - 2 ** (bits - 1)
    elif _tensor(zero_points).dtype == torch.uint8:
        points = _unpacked(_tensor(zero_points).reshape(N, -1), bits)[:, :blocks]
        centered = weight.to(scales.dtype) - points.unsqueeze(-1).to(scales.dtype)
    else:
        centered = weight.to(scales.dtype) - _tensor(zero_points).reshape(N, blocks, 1)
    whole = (centered * scales).reshape(N, -1)[:, :K]
    product = torch.matmul(a, whole.t())
    return product if bias is None else product + bias


@onnx_op("MatMulOfBlocks", domain=OWN_FORMS)
def matmul_of_blocks(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    group_index: Any = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`MatMulNBits` of 4 bits, whose weight has a byte for each element; Core AI stores 4 bits again."""
    if group_index is not None:
        raise TypeError("an index of groups is not supported")
    scales = scales.reshape(b.shape[0], -1)
    points = torch.full_like(scales, 8, dtype=torch.uint8) if zero_points is None else zero_points
    weight = overload_of("torch_patcomp.blockwise_shift_scale")(b, scales, zero_point=points, input_dtype=_FOUR_BITS)
    return F.linear(a, weight, bias)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return packed
    return torch.stack((packed & 15, packed >> 4), -1).flatten(-2)


@onnx_op("QGemm", domain=MICROSOFT)
def qgemm(
    a: Tensor,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Tensor | None = None,
    scale: Any = None,
    zero: Any = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Tensor:
    """The product of what both stand for, quantized if a scale is given."""
    product = gemm(
        dequantize(a, a_scale, a_zero), dequantize(b, b_scale, b_zero, axis=0 if transB else 1),
        alpha=alpha, transA=transA, transB=transB,
    )  # fmt: skip
    if c is not None:
        product = product + c.to(product.dtype) * (_tensor(a_scale) * _tensor(b_scale)) * alpha
    return product if scale is None else quantize(product, scale, zero)

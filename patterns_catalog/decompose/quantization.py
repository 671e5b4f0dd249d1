"""Quantization by arithmetic: of tokens and groups, and the fake quantization of quantization-aware training."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example

_OP = "quantized_decomposed."


@decomposition(f"{_OP}choose_qparams_per_token_asymmetric", examples=[example("2x3x4xf32", "si8")])
def choose_parameters_per_token(input: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    "the scale and zero point that map the range of each row, extended to include 0, onto eight bits"
    least, most = input.amin(-1, keepdim=True).clamp(max=0), input.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / 255).clamp(min=torch.finfo(torch.float32).eps)
    low, high = least / scale, most / scale
    zero_point = torch.where(
        (low - 128) + (high + 127) > 0, -128 - low, 127 - high
    )  # of the end with the smaller error
    return scale.double(), zero_point.clamp(-128, 127).round().long()


@decomposition(f"{_OP}quantize_per_token", examples=[
    example("2x3x4xf32", "2x3x1xf64[0.03,0.04]", "2x3x1xsi64[-3,3]", -128, 127, "si8")
])  # fmt: skip
def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    "round(x / scale + zero point) with the parameters of each row, between the limits"
    return input.mul(1.0 / scales).add(zero_points).round().clamp(quant_min, quant_max).to(dtype)


@decomposition(f"{_OP}dequantize_per_token", examples=[
    example("2x3x4xsi8[-128,127]", "2x3x1xf64[0.03,0.04]", "2x3x1xsi64[-3,3]", -128, 127, "si8", "f32")
])  # fmt: skip
def dequantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int,
    dtype: torch.dtype, output_dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    "(x - zero point) * scale with the parameters of each row"
    return ((input - zero_points) * scales).to(output_dtype)


def _groups(input: Tensor, scales: Tensor, group_size: int) -> Tensor:
    """The rows of a matrix cut into groups; a group longer than a row is the row."""
    return input.reshape(-1, min(group_size, input.shape[-1]) if scales.shape[-1:] == (1,) else group_size)


@decomposition(f"{_OP}quantize_per_channel_group", examples=[
    example("3x8xf32", "3x2xf32[0.03,0.04]", "3x2xsi32[-3,3]", -8, 7, "si8", 4)
])  # fmt: skip
def quantize_per_channel_group(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int,
    dtype: torch.dtype, group_size: int,
) -> Tensor:  # fmt: skip
    "round(x / scale + zero point) with the parameters of each group in a row, between the limits"
    grouped = _groups(input, scales, group_size)
    moved = grouped.mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1)).round()
    return moved.clamp(quant_min, quant_max).to(dtype).reshape_as(input)


_NO_INTEGER = dict.fromkeys(("infinities and zeros", "NaN"), "which integer eager makes of infinity and NaN is open")


@decomposition(f"{_OP}fake_quant_per_channel", unspecified=_NO_INTEGER | dict.fromkeys(
    ("axes", "sizes", "ranks", "options"), "eager does not check that the scales fit the axis"
), examples=[
    example("2x3x4xf32", "3xf32[0.03,0.04]", "3xsi32[-3,3]", 1, -128, 127)
])  # fmt: skip
def fake_quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    "quantized and dequantized at once"
    shape = [-1 if dim == axis % input.dim() else 1 for dim in range(input.dim())]
    scale, zero_point = scales.float().reshape(shape), zero_points.to(torch.int32).reshape(shape)
    return _fake_quantized(input, scale, zero_point, quant_min, quant_max)[0]


def _fake_quantized(
    x: Tensor, scale: Tensor | float, zero_point: Tensor | int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Quantized and dequantized at once, and which values were between the limits."""
    moved = torch.round(x * (1.0 / scale)) + zero_point
    inside = torch.logical_and(moved >= quant_min, moved <= quant_max)
    return ((torch.clamp(moved, quant_min, quant_max) - zero_point) * scale).to(x.dtype), inside


@decomposition("aten.fake_quantize_per_tensor_affine_cachemask", unspecified=_NO_INTEGER | {
    "options": "eager takes a scale of zero",
}, examples=[
    example("2x9xf32", 0.03125, 3, -20, 20)
])  # fmt: skip
def fake_quantize(self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    "quantized and dequantized at once"
    return _fake_quantized(self, scale, zero_point, quant_min, quant_max)


@decomposition("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams", unspecified=_NO_INTEGER, examples=[
    example("2x9xf32", "1xf32[0.03,0.04]", "1xsi32[-3,3]", "1xsi64[1,1]", -20, 20),
    example("2x9xf32", "1xf32[0.03,0.04]", "1xsi32[-3,3]", "1xsi64[0,0]", -20, 20),
])  # fmt: skip
def fake_quantize_if_enabled(
    self: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    "quantized and dequantized at once, if that is enabled"
    output, inside = _fake_quantized(self, scale, zero_point, quant_min, quant_max)
    enabled = fake_quant_enabled.reshape([]) != 0
    return torch.where(enabled, output, self), torch.logical_or(inside, torch.logical_not(enabled))


@decomposition("aten.fake_quantize_per_channel_affine_cachemask", unspecified=_NO_INTEGER, examples=[
    example("2x3x4xf32", "3xf32[0.03,0.04]", "3xsi32[-3,3]", 1, -20, 20)
])  # fmt: skip
def fake_quantize_channels(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    "quantized and dequantized at once, with the scale and zero point of each slice of an axis"
    shape = [-1 if dim == axis % self.dim() else 1 for dim in range(self.dim())]
    return _fake_quantized(self, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)

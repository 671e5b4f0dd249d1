"""Deformable convolution of torchvision (Dai et al. 2017, arXiv:1703.06211; with a mask Zhu et al. 2018)."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example

_TYPICAL = ("1x4x5x6xf32", "6x4x3x3xf32", "1x18x5x6xf32[-2,2]")


@decomposition("torchvision.deform_conv2d", examples=[
    example(*_TYPICAL, "1x0xf32", "6xf32", 1, 1, 1, 1, 1, 1, 1, 1, False),
    example("2x4x5x6xf32", "4x2x2x3xf32", "2x24x3x2xf32[-2,2]", "2x12x3x2xf32", "4xf32",
            2, 2, 1, 0, 1, 1, 2, 2, True),
])  # fmt: skip
def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int,
    pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """A convolution whose every tap is read at an offset of its own, between four pixels; zeros are outside.

    The offsets are rows and columns in turn, for each tap of each offset group.
    """
    if not input.dim() == weight.dim() == offset.dim() == 4:
        raise Rejected("a deformable convolution needs a batch of images, a weight and offsets of four dimensions")
    batch, channels, height, width = input.shape
    outputs, _, kernel_h, kernel_w = weight.shape
    rows, columns = offset.shape[2:]
    taps, part = kernel_h * kernel_w, channels // offset_groups
    moved = offset.reshape(batch, offset_groups, taps, 2, rows, columns)
    y = _grid(rows, stride_h, pad_h, kernel_h, dilation_h, offset)  # [kernel_h, rows]
    x = _grid(columns, stride_w, pad_w, kernel_w, dilation_w, offset)
    y = y.reshape(kernel_h, 1, rows, 1).expand(-1, kernel_w, -1, columns).reshape(taps, rows, columns)
    x = x.reshape(1, kernel_w, 1, columns).expand(kernel_h, -1, rows, -1).reshape(taps, rows, columns)
    y, x = y + moved[:, :, :, 0], x + moved[:, :, :, 1]  # [batch, offset_groups, taps, rows, columns]
    pixels = input.reshape(batch, offset_groups, part, height * width).transpose(2, 3).reshape(-1, part)
    image = torch.arange(batch * offset_groups, device=input.device).reshape(batch, offset_groups, 1, 1, 1)
    top, left = y.floor(), x.floor()
    total = None
    for below, right in itertools.product((0, 1), repeat=2):
        row, column = top + below, left + right
        share = (y - top if below else top + 1 - y) * (x - left if right else left + 1 - x)
        # False for NaN
        inside = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
        place = torch.where(inside, row, 0).to(torch.int64) * width + torch.where(inside, column, 0).to(torch.int64)
        values = pixels.index_select(0, (image * (height * width) + place).reshape(-1))
        weighted = values * torch.where(inside, share, 0).reshape(-1, 1)
        total = weighted if total is None else total + weighted
    assert total is not None
    if use_mask:
        total = total * mask.reshape(-1, 1)
    read = total.reshape(batch, offset_groups, taps, rows * columns, part).permute(0, 1, 4, 2, 3)
    inner = channels // groups * taps
    made = weight.reshape(groups, outputs // groups, inner) @ read.reshape(batch, groups, inner, rows * columns)
    return made.reshape(batch, outputs, rows, columns) + bias.reshape(-1, 1, 1)


def _grid(outputs: int, stride: int, padding: int, kernel: int, dilation: int, like: Tensor) -> Tensor:
    """Where each tap of a kernel is along one axis, for each output, without offsets."""
    starts = torch.arange(outputs, dtype=like.dtype, device=like.device) * stride - padding
    return starts + torch.arange(kernel, dtype=like.dtype, device=like.device).unsqueeze(1) * dilation

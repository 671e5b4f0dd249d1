"""The operators of torchvision, written as loops, for tests that do without a torchvision that fits this PyTorch.

A test imports this module for its effect; where torchvision's own operators can be loaded, they stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import registered_overload
from patcomp.torchvision import declare_operators
from tests.helpers.library_ops import SCHEMAS


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    kept: list[int] = []
    areas = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    for index in scores.argsort(descending=True, stable=True).tolist():
        for other in kept:
            low, high = torch.maximum(dets[index, :2], dets[other, :2]), torch.minimum(dets[index, 2:], dets[other, 2:])
            shared = (high - low).clamp(min=0).prod()
            if (shared / (areas[index] + areas[other] - shared)).item() > iou_threshold:
                break
        else:
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


def _between(plane: Tensor, y: float, x: float) -> float:
    """The pixel at a place between four, where 0 is outside."""
    height, width = plane.shape
    top, left = math.floor(y), math.floor(x)
    total = 0.0
    for row, share in ((top, top + 1 - y), (top + 1, y - top)):
        for column, part in ((left, left + 1 - x), (left + 1, x - left)):
            if 0 <= row < height and 0 <= column < width:
                total += share * part * plane[row, column].item()
    return total


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int,
    pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    _check(len({x.dtype for x in (input, weight, offset, mask, bias)}) == 1, "expected tensors of one type")
    outputs, part, kernel_h, kernel_w = weight.shape
    sizes = [
        (input.shape[2] + 2 * pad_h - dilation_h * (kernel_h - 1) - 1) // stride_h + 1,
        (input.shape[3] + 2 * pad_w - dilation_w * (kernel_w - 1) - 1) // stride_w + 1,
    ]
    _check([*offset.shape[2:]] == sizes, "the offsets must have the size of the output")
    _check(offset.shape[1] == 2 * offset_groups * kernel_h * kernel_w, "there must be two offsets for each tap")
    _check(input.shape[1] == part * groups and outputs % groups == 0, "the weight must fit the groups")
    made = bias.reshape(1, -1, 1, 1).expand(len(input), outputs, *offset.shape[2:]).clone()
    taps = kernel_h * kernel_w
    for image, channel, row, column in torch.cartesian_prod(*map(torch.arange, (*input.shape[:2], *offset.shape[2:]))):
        first = (channel // (input.shape[1] // offset_groups)).item() * taps
        group, inner = divmod(channel.item(), part)
        for tap in range(taps):
            down, across = divmod(tap, kernel_w)
            shift = offset[image, 2 * (first + tap) : 2 * (first + tap) + 2, row, column]
            y = row * stride_h - pad_h + down * dilation_h + shift[0]
            x = column * stride_w - pad_w + across * dilation_w + shift[1]
            value = _between(input[image, channel], y.item(), x.item())
            value *= mask[image, first + tap, row, column].item() if use_mask else 1.0
            rows = slice(group * (outputs // groups), (group + 1) * (outputs // groups))
            made[image, rows, row, column] += weight[rows, inner, down, across] * value
    return made


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def _check_regions(input: Tensor, rois: Tensor, bins: int = 1) -> None:
    _check(input.dtype == rois.dtype and input.dtype in (torch.float32, torch.float64), "expected floats of one type")
    _check(input.dim() == 4 and rois.dim() == 2 and rois.shape[1] == 5, "expected images and regions")
    _check(input.shape[1] % bins == 0, "there must be channels for each bin")


def _clamped(plane: Tensor, y: float, x: float) -> float:
    """The pixel at a place between four; the outermost ones reach a pixel further, and 0 is beyond."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    return _between(plane, min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1))


def _aligned(
    input: Tensor, rois: Tensor, scale: float, bins: tuple[int, int], ratio: int, offset: float, smallest: float,
    fewest: float, channel: Callable[[int, int, int], int], outputs: int,
) -> Tensor:  # fmt: skip
    made = input.new_zeros(len(rois), outputs, *bins)
    for index, roi in enumerate(rois):
        left, top, right, bottom = (roi[1:] * scale - offset).tolist()
        size = [max(each, smallest) for each in (bottom - top, right - left)]
        step = size[0] / bins[0], size[1] / bins[1]
        points = [ratio if ratio > 0 else math.ceil(each) for each in step]
        count = points[0] * points[1]
        for output, row, column in torch.cartesian_prod(*map(torch.arange, (outputs, *bins))).tolist():
            plane = input[int(roi[0]), channel(output, row, column)]
            values = [
                _clamped(
                    plane,
                    top + (row + (i + 0.5) / points[0]) * step[0],
                    left + (column + (j + 0.5) / points[1]) * step[1],
                )
                for i in range(points[0])
                for j in range(points[1])
            ]
            made[index, output, row, column] = sum(values) / (max(count, fewest) or math.nan)
    return made


def roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> Tensor:  # fmt: skip
    _check_regions(input, rois)
    offset, smallest = (0.5, -math.inf) if aligned else (0.0, 1.0)
    bins = pooled_height, pooled_width
    return _aligned(
        input, rois, spatial_scale, bins, sampling_ratio, offset, smallest, 1, lambda output, *_: output, input.shape[1]
    )


def _numbers(made: Tensor) -> Tensor:
    return torch.arange(made[0].numel(), dtype=torch.int32).reshape(1, *made.shape[1:]).expand(made.shape).clone()


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    bins = pooled_height, pooled_width
    _check_regions(input, rois, bins[0] * bins[1])
    outputs = input.shape[1] // (bins[0] * bins[1])

    def channel(output: int, row: int, column: int) -> int:
        return (output * bins[0] + row) * bins[1] + column

    made = _aligned(input, rois, spatial_scale, bins, sampling_ratio, 0.5, -math.inf, -math.inf, channel, outputs)
    return made, _numbers(made)


def _round(number: float) -> int:
    return math.floor(number + 0.5) if number >= 0 else math.ceil(number - 0.5)


def _windows(
    input: Tensor, roi: Tensor, scale: float, bins: tuple[int, int], further: int, outside: int
) -> Iterator[tuple[int, int, slice, slice]]:
    """The pixels of each bin of a region."""
    limits = [size - outside for size in input.shape[2:]]
    left, top, right, bottom = (_round(each) for each in (roi[1:] * scale).tolist())
    step = max(bottom - top + further, 1) / bins[0], max(right - left + further, 1) / bins[1]
    for at in torch.cartesian_prod(*map(torch.arange, bins)).tolist():
        rows, columns = (
            slice(*(min(max(edge + start, 0), limit) for edge in (math.floor(i * size), math.ceil((i + 1) * size))))
            for i, size, start, limit in zip(at, step, (top, left), limits, strict=True)
        )
        yield at[0], at[1], rows, columns


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    bins = pooled_height, pooled_width
    _check_regions(input, rois)
    made = input.new_zeros(len(rois), input.shape[1], *bins)
    places = torch.full(made.shape, -1, dtype=torch.int32)
    for index, roi in enumerate(rois):
        for row, column, rows, columns in _windows(input, roi, spatial_scale, bins, 1, 0):
            for channel, plane in enumerate(input[int(roi[0])]):
                pixels = plane[rows, columns]
                if pixels.numel():
                    down, across = divmod(int(pixels.argmax()), pixels.shape[1])
                    made[index, channel, row, column] = pixels.max()
                    places[index, channel, row, column] = (rows.start + down) * plane.shape[1] + columns.start + across
    return made, places


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    bins = pooled_height, pooled_width
    _check_regions(input, rois, bins[0] * bins[1])
    made = input.new_zeros(len(rois), input.shape[1] // (bins[0] * bins[1]), *bins)
    for index, roi in enumerate(rois):
        for row, column, rows, columns in _windows(input, roi, spatial_scale, bins, 0, 1):
            for output in range(made.shape[1]):
                pixels = input[int(roi[0]), (output * bins[0] + row) * bins[1] + column][rows, columns]
                made[index, output, row, column] = pixels.mean() if pixels.numel() else 0
    return made, _numbers(made)


def _shape_of_convolution(input: Tensor, weight: Tensor, offset: Tensor, *_: Any) -> Tensor:
    return input.new_empty(input.shape[0], weight.shape[0], *offset.shape[2:])


def _shape_of_regions(input: Tensor, rois: Tensor, _scale: float, high: int, wide: int, *_: Any) -> Tensor:
    return input.new_empty(rois.shape[0], input.shape[1], high, wide)


def _shape_of_bins(input: Tensor, rois: Tensor, scale: float, high: int, wide: int, *_: Any) -> tuple[Tensor, Tensor]:
    made = input.new_empty(rois.shape[0], input.shape[1] // (high * wide), high, wide)
    return made, torch.empty_like(made, dtype=torch.int32)


def _shape_of_maxima(*given: Any) -> tuple[Tensor, Tensor]:
    made = _shape_of_regions(*given)
    return made, torch.empty_like(made, dtype=torch.int32)


def _shape_of_selection(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


STAND_INS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "deform_conv2d": (deform_conv2d, _shape_of_convolution),
    "nms": (nms, _shape_of_selection),
    "ps_roi_align": (ps_roi_align, _shape_of_bins),
    "ps_roi_pool": (ps_roi_pool, _shape_of_bins),
    "roi_align": (roi_align, _shape_of_regions),
    "roi_pool": (roi_pool, _shape_of_maxima),
}
"""Of each operator a function that computes it, and one of the shapes."""

declare_operators()  # loads torchvision's own operators if they fit this PyTorch; else only declares `nms`
OWN = registered_overload("torchvision.roi_align") is not None
"""Whether torchvision's own operators are here."""

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name, (_function, _shapes) in () if OWN else STAND_INS.items():
    if registered_overload(f"torchvision.{_name}") is None:
        LIBRARY.define(SCHEMAS[f"torchvision::{_name}"].removeprefix("torchvision::"))
    LIBRARY.impl(_name, _function, "CPU")
    if _name != "nms" or find_spec("torchvision") is None:  # torchvision itself says of `nms` what its result is
        torch.library.register_fake(f"torchvision::{_name}", _shapes)


def know_the_shape_of_nms() -> None:
    """Let programs with `nms` be exported: a torchvision that is installed says of its shape when it is imported."""
    if find_spec("torchvision") is not None:
        import torchvision  # noqa: F401

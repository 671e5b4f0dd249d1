"""Images of other sizes, and samples of them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.rows import Ints, onnx_op
from patcomp.onnx.importing.values import Known, known

_LIKE_PYTORCH = {
    ("nearest", "asymmetric", "floor"),
    ("linear", "half_pixel"),
    ("linear", "pytorch_half_pixel"),
    ("linear", "align_corners"),
    ("cubic", "half_pixel"),
    ("cubic", "pytorch_half_pixel"),
    ("cubic", "align_corners"),
}
"""The ways of resizing that PyTorch has, as it exports them."""


@onnx_op("Resize")
def resize(
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    antialias: int = 0,
    axes: Ints | None = None,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:
    """The axes behind the first two, as `torch.nn.functional.interpolate` resizes them.

    Raises:
        TypeError: PyTorch has no such way of resizing.
    """
    rank = x.dim() - 2
    scales, sizes = _given(scales, axes, x, 1), _given(sizes, axes, x, None)
    if sizes is None:
        sizes = [_floor(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    if list(sizes[:2]) != list(x.shape[:2]) and not _same(sizes[:2], x.shape[:2]):
        raise TypeError("it resizes the axes of batch or channels")
    whole = _whole_factors(x.shape[2:], sizes[2:])
    way = (mode, coordinate_transformation_mode, nearest_mode) if mode == "nearest" else (mode, coordinate_transformation_mode)  # noqa: E501
    if mode == "nearest" and whole and nearest_mode in ("floor", "round_prefer_floor", "round_prefer_ceil"):
        way = ("nearest", "asymmetric", "floor")  # by a whole factor, each pixel is repeated in each of these ways
    if way not in _LIKE_PYTORCH or exclude_outside or keep_aspect_ratio_policy != "stretch":
        raise TypeError(f"resizing by {', '.join(way)} is not what PyTorch has; export with align_corners, or as nearest")
    if mode == "cubic" and abs(cubic_coeff_a + 0.75) > 1e-6:
        raise TypeError(f"cubic_coeff_a must be -0.75, got {cubic_coeff_a}")
    if mode == "nearest":
        return F.interpolate(x, list(sizes[2:]), mode="nearest")
    kind = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}
    if (mode, rank) not in kind:
        raise TypeError(f"PyTorch does not resize {rank} axes by {mode}")
    corners = coordinate_transformation_mode == "align_corners"
    return F.interpolate(
        x, list(sizes[2:]), mode=kind[mode, rank], align_corners=corners, antialias=bool(antialias)
    )


def _given(value: Any, axes: Ints | None, x: Tensor, other: Any) -> Any:
    """The numbers for all axes; None if there are none."""
    if value is None or (isinstance(value, Known) and not value.values.size):
        return None
    if not isinstance(value, Known):
        raise TypeError("its sizes are computed from data")
    numbers = value.values.reshape(-1).tolist()
    if axes is None:
        return numbers
    whole = list(x.shape) if other is None else [other] * x.dim()
    for axis, number in zip(axes, numbers, strict=True):
        whole[axis] = number
    return whole


def _floor(size: Any) -> Any:
    return int(size) if isinstance(size, float | int) else torch.sym_int(size)


def _same(sizes: Any, others: Any) -> bool:
    return all(bool(a == b) for a, b in zip(sizes, others, strict=True))


def _whole_factors(old: Any, new: Any) -> bool:
    return all(isinstance(a, int) and isinstance(b, int) and a and b % a == 0 for a, b in zip(old, new, strict=True))


@onnx_op("Upsample")
def upsample(x: Tensor, scales: Any = None, *, mode: str = "nearest") -> Tensor:
    """`Resize` of old files."""
    if isinstance(scales, list):
        scales = known(scales, torch.float32)
    return resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@onnx_op("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    return F.grid_sample(x, grid, modes.get(mode, mode), padding_mode, bool(align_corners))


@onnx_op("RoiAlign")
def roi_align(
    x: Tensor,
    boxes: Tensor,
    batch: Tensor,
    *,
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    mode: str = "avg",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    if mode != "avg":
        raise TypeError(f"the mode {mode} is not supported")
    rois = torch.cat([batch.to(boxes.dtype).unsqueeze(1), boxes], 1)
    aligned = coordinate_transformation_mode == "half_pixel"
    return torch.ops.torchvision.roi_align(
        x, rois, spatial_scale, output_height, output_width, sampling_ratio or -1, aligned
    )


@onnx_op("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Ints, *, axes: Ints | None = None) -> Tensor:
    for axis, wanted in zip(axes if axes is not None else range(len(shape)), shape, strict=True):
        axis = axis % x.dim()
        size = x.shape[axis]
        if size >= wanted:
            x = x.narrow(axis, (size - wanted) // 2, wanted)
        else:
            front = (wanted - size) // 2
            pads = [0, 0] * (x.dim() - 1 - axis) + [front, wanted - size - front]
            x = F.pad(x, pads)
    return x

"""Images of other sizes, and samples of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.rows import Ints, onnx_op
from patcomp.onnx.importing.values import KnownArray, known_array

_HALF_PIXEL = ("half_pixel", "pytorch_half_pixel")


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
    rank, places = x.dim() - 2, coordinate_transformation_mode
    scales, sizes = _given(scales, axes, x, 1.0), _given(sizes, axes, x, None)
    exact = sizes is not None or all(_is_exact(size, scale) for size, scale in zip(x.shape, scales, strict=True))
    if sizes is None:
        sizes = [_floor(size, scale) for size, scale in zip(x.shape, scales, strict=True)]
    new = list(sizes[2:])
    if not _same(sizes[:2], x.shape[:2]):
        raise TypeError("it resizes the axes of batch or channels")
    if mode == "nearest":
        repeats = places in _HALF_PIXEL and nearest_mode.startswith("round_prefer") and _whole_factors(x.shape[2:], new)
        fits = (places, nearest_mode) == ("asymmetric", "floor") or repeats
    else:
        fits = places == "half_pixel" or (places == "pytorch_half_pixel" and all(_is_above_one(size) for size in new))
        fits = fits or (places == "align_corners" and exact)
        fits = fits and (mode != "cubic" or abs(cubic_coeff_a + 0.75) < 1e-6)
    if not fits or antialias or exclude_outside or keep_aspect_ratio_policy != "stretch":
        raise TypeError(
            f"PyTorch does not resize so: mode {mode}, coordinates {places}, nearest {nearest_mode}, "
            f"antialias {antialias}, cubic_coeff_a {cubic_coeff_a:g}, exclude_outside {exclude_outside}, "
            f"from {list(x.shape)} to {list(sizes)}"
        )
    kinds = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}
    kind = "nearest" if mode == "nearest" else kinds.get((mode, rank))
    if kind is None:
        raise TypeError(f"PyTorch does not resize {rank} axes by {mode}")
    corners = None if mode == "nearest" else places == "align_corners"
    if exact:
        return F.interpolate(x, new, mode=kind, align_corners=corners)
    return F.interpolate(x, scale_factor=scales[2:], mode=kind, align_corners=corners)


def _given(value: Any, axes: Ints | None, x: Tensor, other: Any) -> Any:
    """The numbers for all axes; None if there are none."""
    if value is None or (isinstance(value, KnownArray) and not value.values.size):
        return None
    if not isinstance(value, KnownArray):
        raise TypeError("its sizes are computed from data")
    numbers = value.values.reshape(-1).tolist()
    if axes is None:
        return numbers
    whole = list(x.shape) if other is None else [other] * x.dim()
    for axis, number in zip(axes, numbers, strict=True):
        whole[axis] = number
    return whole


def _floor(size: Any, scale: Any) -> Any:
    """A new size, which ONNX Runtime computes in float32."""
    return int(np.float32(size) * np.float32(scale)) if isinstance(size, int) else torch.sym_int(size * scale)


def _is_exact(size: Any, scale: Any) -> bool:
    """Whether a size times its scale is a whole number; then the scale is that of both sizes."""
    whole = float(scale).is_integer() if not isinstance(size, int) else abs(size * scale - round(size * scale)) < 1e-4
    return bool(whole)


def _is_above_one(size: Any) -> bool:
    return isinstance(size, int) and size > 1


def _same(sizes: Any, others: Any) -> bool:
    return all(bool(a == b) for a, b in zip(sizes, others, strict=True))


def _whole_factors(old: Any, new: Any) -> bool:
    return all(isinstance(a, int) and isinstance(b, int) and a and b % a == 0 for a, b in zip(old, new, strict=True))


@onnx_op("Upsample")
def upsample(x: Tensor, scales: Any = None, *, mode: str = "nearest") -> Tensor:
    """`Resize` of old files."""
    if isinstance(scales, list):
        scales = known_array(scales, torch.float32)
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

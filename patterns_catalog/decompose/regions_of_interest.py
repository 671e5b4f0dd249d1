"""Regions of interest of torchvision: features of boxes (He et al. 2017, arXiv:1703.06870; R-FCN, arXiv:1605.06409).

A region is a row with the number of an image and a box. It is divided into bins, rows times columns. The result is what
a bin has on average, at most, or at sampled points. Position-sensitive pools read other channels for each bin.

The weight of a pixel in a bin of averages is the product of a weight of its row and a weight of its column.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example

_BOXES = torch.tensor([[0, 0.5, 1, 4, 3.5], [0, -2, 0, 7.5, 4]])


_CORNERS = "torchvision makes integers of infinite corners, which C++ leaves undefined"
_SPREADS = "an infinity or NaN also reaches bins that give it the weight 0"
_SPREADING = dict.fromkeys(("infinities and zeros", "NaN"), f"{_SPREADS}; {_CORNERS}")


@decomposition("torchvision.roi_align", unspecified=_SPREADING, examples=[
    example("2x3x5x6xf32", _BOXES, 1.0, 2, 3, 2, False), example("2x3x5x6xf32", _BOXES, 0.5, 3, 2, 1, True),
    example("2x3x5x6xf32", _BOXES, 1.0, 2, 2, -1, True), example("2x3x5x6xf32", _BOXES, 2.0, 2, 2, 0, False),
])  # fmt: skip
def roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> Tensor:  # fmt: skip
    """The mean of points in each bin, each between four pixels: `sampling_ratio` points along an axis, or so many
    that the distance is at most a pixel."""
    _check_ranks(input, rois)
    starts, sizes = _scaled(rois, spatial_scale, 0.5 if aligned else 0.0)
    sizes = sizes if aligned else sizes.clamp(min=1)
    bins = pooled_height, pooled_width
    if sampling_ratio > 0:
        return _mean_of_points(input, rois, starts, sizes, bins, sampling_ratio)
    rows, columns = _point_weights(input, starts, sizes, bins, sampling_ratio, fewest=1.0)
    batch, channels, height, width = input.shape
    lines = input.transpose(0, 1).reshape(channels * batch * height, width)
    count = rois.shape[0]
    # [channels, images x rows, regions, columns of bins] to [regions, channels x columns of bins, images x rows]
    read = (lines @ columns.reshape(-1, width).t()).reshape(channels, batch * height, count, pooled_width)
    read = read.permute(2, 0, 3, 1).reshape(count, channels * pooled_width, batch * height)
    made = read @ _of_images(rows, rois, batch).transpose(1, 2)
    return made.reshape(count, channels, pooled_width, pooled_height).transpose(2, 3)


@decomposition("torchvision.ps_roi_align", unspecified=_SPREADING, examples=[
    example("2x8x5x6xf32", _BOXES, 1.0, 2, 2, 2), example("2x12x5x6xf32", _BOXES, 0.5, 3, 2, -1),
])  # fmt: skip
def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    "the mean of points in each bin; each bin reads its own channels"
    _check_ranks(input, rois)
    starts, sizes = _scaled(rois, spatial_scale, 0.5)
    rows, columns = _point_weights(input, starts, sizes, (pooled_height, pooled_width), sampling_ratio)
    return _position_sensitive(input, rois, rows, columns)


@decomposition("torchvision.ps_roi_pool", unspecified=_SPREADING, examples=[
    example("2x8x5x6xf32", _BOXES, 1.0, 2, 2), example("2x12x5x6xf32", _BOXES, 0.5, 3, 2),
])  # fmt: skip
def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    "the mean of the pixels in each bin; each bin reads its own channels; 0 of a bin without pixels"
    _check_ranks(input, rois)
    starts, ends = (_half_away(rois[:, columns] * spatial_scale) for columns in (slice(1, 3), slice(3, 5)))
    sizes = (ends - starts).clamp(min=1)
    weights = []
    for axis, count in ((1, pooled_height), (0, pooled_width)):
        # torchvision leaves the last row and column out
        first, last = _pixels(starts[:, axis], sizes[:, axis], count, input.shape[3 - axis] - 1)
        pixel = torch.arange(input.shape[3 - axis], device=input.device)
        inside = (pixel >= first.unsqueeze(2)) & (pixel < last.unsqueeze(2))
        weights.append(inside.to(input.dtype) / (last - first).clamp(min=1).unsqueeze(2))
    return _position_sensitive(input, rois, *weights)


@decomposition("torchvision.roi_pool", unspecified=dict.fromkeys(("infinities and zeros", "NaN"), _CORNERS), examples=[
    example("2x3x5x6xf32", _BOXES, 1.0, 2, 3), example("2x3x5x6xf32", _BOXES, 0.5, 3, 2),
])  # fmt: skip
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest pixel of each bin and its place; 0 of a bin without pixels, and -1. NaN is never the largest.

    A bin is covered by four windows whose sides are powers of two, the largest that fit. The maxima of all such windows
    are made once, by doubling.
    """
    _check_ranks(input, rois)
    starts, ends = (_half_away(rois[:, columns] * spatial_scale) for columns in (slice(1, 3), slice(3, 5)))
    sizes = (ends - starts + 1).clamp(min=1)
    batch, channels, height, width = input.shape
    if not (isinstance(height, int) and isinstance(width, int)):
        raise Rejected("roi_pool needs an image of a fixed size; export with that size fixed, or use roi_align")
    top, bottom = _pixels(starts[:, 1], sizes[:, 1], pooled_height, height)
    left, right = _pixels(starts[:, 0], sizes[:, 0], pooled_width, width)
    lowest = torch.finfo(input.dtype).min
    values = torch.where(input > lowest, input, lowest)
    numbers = torch.arange(height * width, dtype=torch.int32, device=input.device)
    pairs = values, numbers.reshape(height, width).expand(input.shape)
    windows = [pair for wide in _doubled(pairs, 3) for pair in _doubled(wide, 2)]
    high, wide = (_exponent(last - first, size) for first, last, size in ((top, bottom, height), (left, right, width)))
    image = rois[:, 0].to(torch.int64).reshape(-1, 1, 1)
    rows = [edge.clamp(0, height - 1).unsqueeze(2) for edge in (top, bottom - torch.pow(2, high))]
    columns = [edge.clamp(0, width - 1).unsqueeze(1) for edge in (left, right - torch.pow(2, wide))]
    level = wide.unsqueeze(1) * len(_doublings(height)) + high.unsqueeze(2)
    at = [
        ((((level * batch + image) * height + row) * width) + column).reshape(-1)
        for row, column in itertools.product(rows, columns)
    ]
    tables = [torch.stack(table).permute(0, 1, 3, 4, 2).reshape(-1, channels) for table in zip(*windows, strict=True)]
    found = [(tables[0].index_select(0, index), tables[1].index_select(0, index)) for index in at]
    largest, place = reduce(_larger, found)
    empty = ((bottom <= top).unsqueeze(2) | (right <= left).unsqueeze(1)).reshape(-1, 1)
    place = torch.where(empty | (largest == lowest), -1, place)
    shape = rois.shape[0], pooled_height, pooled_width, channels
    made, where = (x.reshape(shape).permute(0, 3, 1, 2) for x in (torch.where(empty, 0, largest), place))
    return made, where


def _check_ranks(input: Tensor, rois: Tensor) -> None:
    if input.dim() != 4 or rois.dim() != 2:
        raise Rejected("regions of interest need a batch of images and a matrix of regions")


def _scaled(rois: Tensor, scale: float, offset: float) -> tuple[Tensor, Tensor]:
    """The upper left corner and the size of each box in pixels, x before y."""
    starts, ends = rois[:, 1:3] * scale - offset, rois[:, 3:5] * scale - offset
    return starts, ends - starts


def _half_away(x: Tensor) -> Tensor:
    """Rounded as C's `round`: halves away from zero."""
    return torch.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor()).to(torch.int64)


def _pixels(start: Tensor, size: Tensor, count: int, limit: int) -> tuple[Tensor, Tensor]:
    """The first pixel of each bin along one axis, and the one after its last: [regions, bins]."""
    step = (size.to(torch.float32) / count).unsqueeze(1)
    edges = torch.arange(count + 1, dtype=torch.float32, device=start.device)
    first, last = (edges[:-1] * step).floor().to(torch.int64), (edges[1:] * step).ceil().to(torch.int64)
    return tuple((edge + start.unsqueeze(1)).clamp(0, limit) for edge in (first, last))  # type: ignore[return-value]


def _corners(start: Tensor, step: Tensor, count: int) -> Tensor:
    """Along one axis, where each bin of each region starts: [regions, bins]."""
    return start.unsqueeze(1) + torch.arange(count, dtype=step.dtype, device=step.device) * step.unsqueeze(1)


def _points(start: Tensor, size: Tensor, count: int, ratio: int) -> Tensor:
    """Along one axis, a fixed number of points in the bins of each region: [regions, bins, points]."""
    step = size / count
    points = (torch.arange(ratio, dtype=size.dtype, device=size.device) + 0.5) * (step / ratio).unsqueeze(1)
    return _corners(start, step, count).unsqueeze(2) + points.unsqueeze(1)


_NEAR = 7
"""Points whose distance is more than half a pixel and at most one: of them, five are at most a pixel away from any
place. One more on each side allows for rounding."""


def _near_points(start: Tensor, size: Tensor, count: int, pixels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Along one axis, those of as many points in each bin as it has pixels, rounded up, that may be near each pixel.

    Returns:
        The points, [regions, bins, pixels, 7]; which of them exist; how many points a bin of each region has.
    """
    step = size / count
    number = step.ceil()
    distance = torch.where(number > 0, step / number, 1)
    first = _corners(start, step, count).reshape(-1, count, 1, 1)
    distance, pixel = distance.reshape(-1, 1, 1, 1), torch.arange(pixels, device=size.device).reshape(-1, 1)
    nearest = ((pixel - 1 - first) / distance - 0.5).floor().clamp(min=0)
    index = nearest + torch.arange(_NEAR, device=size.device)
    return first + (index + 0.5) * distance, index < number.reshape(-1, 1, 1, 1), number


def _between(points: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each point along one axis: the pixel before it and the one after, the share of the latter, and whether the
    point is near the image, which ends a pixel beyond the outermost ones."""
    near = (points >= -1) & (points <= size)
    place = torch.where(near, points, 0).clamp(0, size - 1)
    low = place.floor()
    return low.to(torch.int64), (low + 1).clamp(max=size - 1).to(torch.int64), place - low, near


def _mean_of_points(
    input: Tensor, rois: Tensor, starts: Tensor, sizes: Tensor, bins: tuple[int, int], ratio: int
) -> Tensor:
    _, channels, height, width = input.shape
    pixels = input.permute(0, 2, 3, 1).reshape(-1, channels)
    image = rois[:, 0].to(torch.int64).reshape(-1, 1, 1, 1, 1)
    shape = (rois.shape[0], bins[0], bins[1], ratio, ratio)
    top, bottom, down, near_y = (
        part.unsqueeze(2).unsqueeze(4).expand(shape)
        for part in _between(_points(starts[:, 1], sizes[:, 1], bins[0], ratio), height)
    )
    left, right, across, near_x = (
        part.unsqueeze(1).unsqueeze(3).expand(shape)
        for part in _between(_points(starts[:, 0], sizes[:, 0], bins[1], ratio), width)
    )
    total = None
    for (row, share), (column, part) in itertools.product(
        ((top, 1 - down), (bottom, down)), ((left, 1 - across), (right, across))
    ):
        weight = torch.where(near_y & near_x, share * part, 0)
        values = pixels.index_select(0, ((image * height + row) * width + column).reshape(-1))
        weighted = values * weight.reshape(-1, 1)
        total = weighted if total is None else total + weighted
    assert total is not None
    made = total.reshape(-1, ratio * ratio, channels).mean(1)
    return made.reshape(*shape[:3], channels).permute(0, 3, 1, 2)


def _point_weights(
    input: Tensor, starts: Tensor, sizes: Tensor, bins: tuple[int, int], ratio: int, *, fewest: float = -math.inf
) -> tuple[Tensor, Tensor]:
    """How much each bin takes of each row, and of each column: [regions, bins, pixels].

    A mean is a sum divided by at least `fewest`.
    """
    weights = []
    for axis, count in ((1, bins[0]), (0, bins[1])):
        size = input.shape[3 - axis]
        if ratio > 0:
            points = _points(starts[:, axis], sizes[:, axis], count, ratio).unsqueeze(2)
            low, high, share, counted = _between(points, size)
            number: Tensor | int = ratio
        else:
            points, exist, numbers = _near_points(starts[:, axis], sizes[:, axis], count, size)
            low, high, share, near = _between(points, size)
            counted, number = near & exist, numbers.clamp(min=fewest).reshape(-1, 1, 1)
        pixel = torch.arange(size, device=input.device).reshape(-1, 1)
        taken = torch.where(pixel == low, 1 - share, 0) + torch.where(pixel == high, share, 0)
        weights.append(torch.where(counted, taken, 0).sum(3) / number)
    return weights[0], weights[1]


def _of_images(weights: Tensor, rois: Tensor, batch: int) -> Tensor:
    """Weights of the rows of each region's own image, among the rows of all images: [regions, bins, images x rows]."""
    image = torch.arange(batch, device=rois.device).reshape(1, 1, -1, 1)
    own = rois[:, 0].to(torch.int64).reshape(-1, 1, 1, 1) == image
    return torch.where(own, weights.unsqueeze(2), 0).flatten(2)


def _position_sensitive(input: Tensor, rois: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """What each bin takes of its own channels, which have the numbers of their bins innermost."""
    (batch, channels, height, width), (count, high, _), wide = input.shape, rows.shape, columns.shape[1]
    if channels % (high * wide):
        raise Rejected(f"a position-sensitive pool of {channels} channels needs a multiple of {high * wide}")
    outputs = channels // (high * wide)
    lines = input.reshape(batch, outputs, high, wide, height, width).permute(2, 3, 0, 4, 1, 5)
    own = _of_images(rows, rois, batch).transpose(0, 1).unsqueeze(1)  # [high, 1, regions, images x rows]
    read = own @ lines.reshape(high, wide, batch * height, outputs * width)
    read = read.reshape(high, wide, count, outputs, width) * columns.permute(1, 0, 2).reshape(1, wide, count, 1, width)
    made = read.sum(4).permute(2, 3, 0, 1)
    return made, _channels(made)


def _channels(made: Tensor) -> Tensor:
    """The channel that each result was read from, which torchvision returns for its gradient."""
    numbers = torch.arange(made[0].numel(), dtype=torch.int32, device=made.device)
    return numbers.reshape(1, *made.shape[1:]).expand(made.shape)


def _doublings(size: int) -> range:
    """The exponents of the powers of two that are not larger than a size."""
    return range(max(size, 1).bit_length())


_Maxima = tuple[Tensor, Tensor]
"""The largest elements of windows, and their places."""


def _larger(a: _Maxima, b: _Maxima) -> _Maxima:
    """At each element the larger of two values; of equal values, the one at the first place."""
    of_b = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
    return torch.where(of_b, b[0], a[0]), torch.where(of_b, b[1], a[1])


def _doubled(x: _Maxima, axis: int) -> list[_Maxima]:
    """The largest of 1, 2, 4, ... elements along an axis, from each element on; near the end, of the remaining
    elements."""
    made, size = [x], x[0].shape[axis]
    for exponent in _doublings(size)[:-1]:
        step = 1 << exponent
        later = [
            torch.cat([part.narrow(axis, step, size - step), part.narrow(axis, size - step, step)], axis)
            for part in made[-1]
        ]
        made.append(_larger(made[-1], (later[0], later[1])))
    return made


def _exponent(length: Tensor, size: int) -> Tensor:
    """The largest exponent of a power of two that is not larger than a length; 0 for nothing."""
    exponents = [length >= 1 << exponent for exponent in _doublings(size)[1:]]
    return torch.stack(exponents).sum(0) if exponents else torch.zeros_like(length)

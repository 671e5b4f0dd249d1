"""Sampling at positions that are known only at run time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from patterns_catalog.decompose.promotion import in_floats


@decomposition("aten.grid_sampler_2d", "aten.grid_sampler_3d", examples=[
    example("2x3x4x5xf32", "2x3x2x2xf32[-1.3,1.3]", 0, 0, False),
    example("2x3x4x5xf32", "2x3x2x2xf32[-3,3]", 1, 1, True),
    example("1x2x4x5xf32", "1x3x2x2xf32[-999,999]", 2, 2, False),
    example("1x2x4x5xf32", "1x3x2x2xf32[-3,3]", 2, 0, True),
    example("2x3x3x4x5xf32", "2x2x3x2x3xf32[-1.3,1.3]", 0, 0, False, op="aten.grid_sampler_3d"),
    example("2x3x3x4x5xf32", "2x2x3x2x3xf32[-1.3,1.3]", 0, 1, True, op="aten.grid_sampler_3d"),
    example("1x2x3x4x5xf32", "1x2x3x2x3xf32[-3,3]", 1, 2, False, op="aten.grid_sampler_3d"),
    example("1x2x3x4x5xf32", "1x2x3x2x3xf32[-3,3]", 0, 2, True, op="aten.grid_sampler_3d"),
])  # fmt: skip
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """The nearest element, or a weighted mean of those around each position.

    Modes are those of `torch.nn.functional.grid_sample`: 0 linear, 1 nearest, 2 cubic; outside are zeros (0), the
    border (1) or the image's reflection (2). PyTorch's decomposition in two dimensions multiplies the first element by
    0 where the op takes none, and counts reflections in a byte.
    """
    dims = input.dim() - 2
    if interpolation_mode not in (0, 1, 2) or padding_mode not in (0, 1, 2) or (interpolation_mode == 2 and dims == 3):
        raise Rejected(f"interpolation mode {interpolation_mode} with padding mode {padding_mode} is not supported")
    (input, grid), result = in_floats(input, grid)  # half precision would move the positions
    sizes = input.shape[2:]
    # the grid's last axis counts from the innermost axis of the image
    places = [_source(grid[..., dims - 1 - axis], size, align_corners) for axis, size in enumerate(sizes)]
    batch = torch.arange(input.size(0), device=input.device).reshape(-1, *[1] * dims)
    image = input.movedim(1, -1)

    def inside_image(place: Tensor, size: int) -> Tensor:
        return _inside(place, size, padding_mode, align_corners)

    def elements(places: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
        inside = torch.ones_like(places[0], dtype=torch.bool)
        indices = []
        for place, size in zip(places, sizes, strict=True):
            within = (place >= 0) & (place <= size - 1)  # False for NaN
            inside = inside & within
            indices.append(torch.where(within, place, 0).to(torch.int64))
        values = torch.where(inside.unsqueeze(-1), image[batch, *indices], 0)
        if not weights:
            return values
        weight = math.prod(weights[1:], start=weights[0])
        # ATen's kernel in three dimensions leaves out terms, its kernel in two adds zeros times their weights
        return values * (weight if dims == 2 else torch.where(inside, weight, 0)).unsqueeze(-1)

    if interpolation_mode == 1:
        nearest = [inside_image(place, size).round() for place, size in zip(places, sizes, strict=True)]
        return elements(nearest, ()).movedim(-1, 1).to(result)
    if interpolation_mode == 0:
        places = [inside_image(place, size) for place, size in zip(places, sizes, strict=True)]
    lows = [place.floor() for place in places]
    around: list[list[tuple[Tensor, Tensor]]] = []
    for place, low, size in zip(places, lows, sizes, strict=True):
        if interpolation_mode == 0:
            around.append([(low, low + 1 - place), (low + 1, place - low)])
        else:
            near = [inside_image(low + offset, size) for offset in (-1, 0, 1, 2)]
            around.append(list(zip(near, _cubic_weights(place - low), strict=True)))
    parts = [elements(*zip(*corner, strict=True)) for corner in itertools.product(*around)]
    return sum(parts[1:], start=parts[0]).movedim(-1, 1).to(result)


def _source(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """The position in elements of one in [-1, 1]."""
    return (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2


def _inside(source: Tensor, size: int, padding: int, align_corners: bool) -> Tensor:
    """A position brought inside, unless zeros are outside."""
    if padding == 0:
        return source
    if padding == 2:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        source = _reflected(source, low, high)
    # as in ATen, NaN is put at 0
    return torch.where(source > 0, source, 0).clamp(max=size - 1)


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """The weights of the four elements around a position, which is `t` behind the second (Keys, with a = -0.75)."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _reflected(place: Tensor, low: float, high: float) -> Tensor:
    """The position after reflections at both ends."""
    span = high - low
    if span == 0:
        return torch.zeros_like(place)
    distance = (place - low).abs()
    turns = (distance / span).floor()
    rest = distance - turns * span
    return torch.where(turns % 2 == 0, rest + low, high - rest)

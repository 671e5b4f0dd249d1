"""Sampling at positions that are known only at run time."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example


@decomposition("aten.grid_sampler_3d", examples=[
    example("2x3x3x4x5xf32", "2x2x3x2x3xf32[-1.3,1.3]", 0, 0, False),
    example("2x3x3x4x5xf32", "2x2x3x2x3xf32[-1.3,1.3]", 0, 1, True),
    example("1x2x3x4x5xf32", "1x2x3x2x3xf32[-3,3]", 1, 2, False),
    example("1x2x3x4x5xf32", "1x2x3x2x3xf32[-3,3]", 0, 2, True),
])  # fmt: skip
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """The nearest voxel or a mean of the eight around each position.

    Modes are those of `torch.nn.functional.grid_sample`: 0 linear, 1 nearest; outside are zeros (0), the border (1) or
    the volume's reflection (2).
    """
    if interpolation_mode not in (0, 1) or padding_mode not in (0, 1, 2):
        raise Rejected(f"interpolation mode {interpolation_mode} with padding mode {padding_mode} is not supported")
    sizes = input.shape[2:]
    # the grid's last axis counts from the innermost axis of the volume
    places = [_source(grid[..., 2 - axis], size, padding_mode, align_corners) for axis, size in enumerate(sizes)]
    batch = torch.arange(input.size(0), device=input.device).reshape(-1, 1, 1, 1)
    volume = input.permute(0, 2, 3, 4, 1)

    def voxels(corner: list[Tensor], weight: Tensor | None) -> Tensor:
        inside = torch.ones_like(corner[0], dtype=torch.bool)
        indices = []
        for place, size in zip(corner, sizes, strict=True):
            within = (place >= 0) & (place <= size - 1)  # False for NaN
            inside = inside & within
            indices.append(torch.where(within, place, 0).to(torch.int64))
        values = volume[batch, *indices]
        if weight is not None:
            values = values * weight.unsqueeze(-1)
        return torch.where(inside.unsqueeze(-1), values, 0)

    if interpolation_mode == 1:
        return voxels([place.round() for place in places], None).permute(0, 4, 1, 2, 3)
    total = None
    lows = [place.floor() for place in places]
    for corner in itertools.product((0, 1), repeat=3):
        weight = torch.ones_like(places[0])
        for upper, place, low in zip(corner, places, lows, strict=True):
            weight = weight * (place - low if upper else low + 1 - place)
        part = voxels([low + upper for low, upper in zip(lows, corner, strict=True)], weight)
        total = part if total is None else total + part
    assert total is not None
    return total.permute(0, 4, 1, 2, 3)


def _source(place: Tensor, size: int, padding: int, align_corners: bool) -> Tensor:
    """The position in voxels of one in [-1, 1], brought inside unless zeros are outside."""
    source = (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2
    if padding == 0:
        return source
    if padding == 2:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        source = _reflected(source, low, high)
    # as in ATen, NaN is put at 0
    return torch.where(source > 0, source, 0).clamp(max=size - 1)


def _reflected(place: Tensor, low: float, high: float) -> Tensor:
    """The position after reflections at both ends."""
    span = high - low
    if span == 0:
        return torch.zeros_like(place)
    distance = (place - low).abs()
    turns = (distance / span).floor()
    rest = distance - turns * span
    return torch.where(turns % 2 == 0, rest + low, high - rest)

"""Large images from a decoder of small ones, tile after tile."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OVERLAP = 4
"""How many latents neighbouring tiles share; their images are blended there. Swift's number, too."""


def decoded_in_tiles(z: Tensor, tile: int, decode: Callable[[Tensor], Tensor], overlap: int = OVERLAP) -> Tensor:
    """The image of latents of any size.

    Args:
        z: (1, channels, height, width); neither side is less than a tile.
        tile: the side of the latents that `decode` takes.
        decode: the image of a tile, larger by a factor that is equal for both sides.
        overlap: the least number of latents that neighbouring tiles share.

    Tiles see nothing of each other, so norms and attention of the decoder differ from those of the whole.
    """
    places = [starts(size, tile, overlap) for size in z.shape[2:]]
    if all(len(found) == 1 for found in places):
        return decode(z)
    image = weights = None
    for top in places[0]:
        for left in places[1]:
            made = decode(z[:, :, top : top + tile, left : left + tile])
            factor = made.shape[-1] // tile
            if image is None or weights is None:
                image = made.new_zeros(*made.shape[:2], *(size * factor for size in z.shape[2:]))
                weights = image.new_zeros(image.shape[2:])
            rows, columns = (
                _ramp(start, starts_, tile, factor).to(made) for start, starts_ in ((top, places[0]), (left, places[1]))
            )
            share = rows[:, None] * columns[None]
            there = (
                slice(top * factor, (top + tile) * factor),
                slice(left * factor, (left + tile) * factor),
            )
            image[:, :, *there] += made * share
            weights[there] += share
    assert image is not None, "there is a tile at least"
    assert weights is not None, "as for the image"
    return image / weights


def starts(size: int, tile: int, overlap: int) -> list[int]:
    """Where tiles begin; the last one ends with the whole."""
    step = max(tile - overlap, 1)
    return [*range(0, max(size - tile, 0), step), max(size - tile, 0)]


def _ramp(start: int, all_starts: list[int], tile: int, factor: int) -> Tensor:
    """How much a tile counts along one side: 1, but rising and falling where the neighbours are."""
    place, share = all_starts.index(start), torch.ones(tile * factor)
    if place > 0:
        shared = (all_starts[place - 1] + tile - start) * factor
        share[:shared] *= (torch.arange(shared) + 0.5) / shared
    if place + 1 < len(all_starts):
        shared = (start + tile - all_starts[place + 1]) * factor
        share[-shared:] *= ((torch.arange(shared) + 0.5) / shared).flip(0)
    return share

"""Sub-pixel shuffles as the composite."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource, Composites, Coreai
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Rewrite, check, compute, example, formula, rule
from patterns_catalog.composites.shuffle import pixel_shuffle
from patterns_catalog.views import known_sizes


@formula(
    "recover", "aten.pixel_shuffle", name="pixel_shuffle",
    examples=[example("1x8x3x4xf32", 2), example("9x2x2xf32", 3)],
    where=lambda self: [(self.shape[-3] >= 0).says("pixel_shuffle needs a static number of channels")],
)  # fmt: skip
def aten_pixel_shuffle(c: Coreai, self: Value, upscale_factor: int) -> Value:
    "[..., C r r, H, W] to [..., C, H r, W r]"
    return pixel_shuffle(self, upscale_factor=upscale_factor)


# ---- from the ops of models that write it out ------------------------------------------------------


def _upscale_factor(match: Any) -> int | None:
    """The factor of the pixel shuffle that the views and the permutation compute; None if they compute another op."""
    shape, split, order, merged = match["x"].shape, match["split"], match["order"], match["merged"]
    lead = len(split) - 5
    if lead < 0 or lead != len(shape) - 3 or None in shape or not known_sizes([*split, *merged]):
        return None
    channels, rows, columns, height, width = split[lead:]
    if rows != columns or split != [*shape[:lead], channels, rows, rows, *shape[-2:]]:
        return None
    if order != [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]:
        return None
    return rows if merged == [*shape[:lead], channels, height * rows, width * rows] else None


@rule(
    name="pixel_shuffle of views",
    example={"x": "1x8x3x4xf32", "split": [1, 2, 2, 2, 3, 4], "order": [0, 1, 4, 2, 5, 3], "merged": [1, 2, 6, 8]},
)
def pixel_shuffle_of_views(a: AtenSource, c: Composites, x: Capture, split: Attr, order: Attr, merged: Attr) -> Rewrite:
    """x.view(..., C, r, r, H, W).permute(..., C, H, r, W, r).view(..., C, H r, W r) (super-resolution networks;
    PyTorch's default decomposition of pixel_shuffle)"""
    cut = a.view(x, size=split)
    return Rewrite(
        a.view(a.permute(cut, dims=order), size=merged),
        to=c.pixel_shuffle(x, upscale_factor=compute("the factor", _upscale_factor)),
        where=[check("the views and the permutation are a pixel shuffle", _upscale_factor)],
    )

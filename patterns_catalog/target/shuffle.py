"""Pixel shuffles of at most five dimensions."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import example, formula
from patterns_catalog.composites.shuffle import pixel_shuffle


@formula("target", pixel_shuffle, name="pixel_shuffle of five dimensions", targets=("neural_engine",), examples=[
    example("2x12x3x5xf32", program=lambda torch, x: torch.nn.functional.pixel_shuffle(x, 2)),
], where=lambda input: [
    (input.is_static & (input.rank == 4)).says("the input must be a batch of images of static sizes"),
])  # fmt: skip
def pixel_shuffle_of_five_dimensions(c: Coreai, input: Value, upscale_factor: int, result: ValueType) -> Value:
    "(B, C r r, H, W) as (B C, r, r, H, W), transposed to (B C, H, r, W, r), as (B, C, H r, W r)"
    batch, channels, height, width = input.static_shape
    parts = c.reshape(input, [batch * channels // upscale_factor**2, upscale_factor, upscale_factor, height, width])
    moved = c.transpose(parts, [0, 3, 1, 4, 2])
    return c.reshape(moved, list(result.static_shape))

"""Pixel shuffles of at most five dimensions."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.recover.shuffle import pixel_shuffle


@op_rule("target", pixel_shuffle, name="pixel_shuffle of five dimensions", targets=("neural_engine",), examples=[
    example("2x12x3x5xf32", program=lambda torch, x: torch.nn.functional.pixel_shuffle(x, 2)),
])  # fmt: skip
def pixel_shuffle_of_five_dimensions(op: OpView, c: Coreai) -> Value:
    "(B, C r r, H, W) as (B C, r, r, H, W), transposed to (B C, H, r, W, r), as (B, C, H r, W r)"
    x, factor = op.input, op.upscale_factor
    op.expect(x.is_static and x.rank == 4, "the input must be a batch of images of static sizes")
    batch, channels, height, width = x.static_shape
    parts = c.reshape(x, [batch * channels // factor**2, factor, factor, height, width])
    moved = c.transpose(parts, [0, 3, 1, 4, 2])
    return c.reshape(moved, list(op.result.static_shape))

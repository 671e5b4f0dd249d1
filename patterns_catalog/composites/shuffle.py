"""Sub-pixel shuffles as composites."""

from __future__ import annotations

from typing import Any

from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import OpView, composites, example, op_rule


@composites.define
@composite("pixel_shuffle", inputs=("input",), attributes=("upscale_factor",))
def pixel_shuffle(c: Any, x: Value, *, upscale_factor: int) -> Value:
    "[..., C r r, H, W] to [..., C, H r, W r] (Shi et al. 2016, arXiv:1609.05158)"
    *batch, channels, height, width = x.static_shape
    r, lead = upscale_factor, len(batch)
    split = c.reshape(x, [*batch, channels // r**2, r, r, height, width])
    order = [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]
    return c.reshape(c.transpose(split, order), [*batch, channels // r**2, height * r, width * r])


@op_rule(
    "recover", "aten.pixel_shuffle", name="pixel_shuffle", examples=[example("1x8x3x4xf32", 2), example("9x2x2xf32", 3)]
)
def aten_pixel_shuffle(op: OpView, c: Any) -> Value:
    x = op["self"]
    op.expect(x.is_static, "a pixel shuffle of a dynamic shape")
    return pixel_shuffle(x, upscale_factor=op.upscale_factor)

"""Sub-pixel shuffles as a composite."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import composites
from patterns_catalog.sizes import product, sizes_of


@composites.define
@composite("pixel_shuffle", inputs=("input",), attributes=("upscale_factor",))
def pixel_shuffle(c: Coreai, x: Value, *, upscale_factor: int) -> Value:
    "[..., C r r, H, W] to [..., C, H r, W r] (Shi et al. 2016, arXiv:1609.05158)"
    *batch, channels, height, width = sizes_of(c, x)
    assert isinstance(channels, int)
    r, lead = upscale_factor, len(batch)
    split = c.reshape(x, [*batch, channels // r**2, r, r, height, width])
    order = [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]
    return c.reshape(
        c.transpose(split, order), [*batch, channels // r**2, product(c, [height, r]), product(c, [width, r])]
    )

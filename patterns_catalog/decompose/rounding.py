"""Rounding to decimal places."""

from __future__ import annotations

from torch import Tensor

from patcomp.patterns import decomposition, example


@decomposition("aten.round.decimals", examples=[
    example("2x9xf32[-9,9]", decimals=2), example("2x9xf32[-999,999]", decimals=-2), example("9xf32[-9,9]", decimals=0),
])  # fmt: skip
def round_decimals(self: Tensor, *, decimals: int) -> Tensor:
    "x times a power of ten, rounded, and divided again, with the rounding errors of PyTorch"
    factor = 10.0 ** abs(decimals)
    if decimals == 0 or not self.is_floating_point():
        return self.round()
    return (self * factor).round() / factor if decimals > 0 else (self / factor).round() * factor

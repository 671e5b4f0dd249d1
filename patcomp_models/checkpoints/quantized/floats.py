"""Floats of 4 and 8 bits, as tables and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.weight import E2M1, PackedWeight


def e2m1_table() -> Tensor:
    """The 16 floats of 4 bits by their bits; the highest bit is the sign."""
    return torch.tensor([*E2M1, *(-number for number in E2M1)])


def powers_of_two(exponents: Tensor) -> PackedWeight:
    """Power-of-two scales, stored as bytes with 127 added (e8m0). Scales beyond float16 become 0 or infinity there;
    using such a scale is an error."""
    return PackedWeight(exponents.view(torch.uint8), 8, None, table=torch.exp2(torch.arange(256.0) - 127))


def in_blocks(data: Tensor, scale: Tensor, block: Sequence[int]) -> Tensor:
    """Scales for blocks of one size, from the scales of blocks of which the last may be short.

    Args:
        data: (..., outputs, inputs).
        scale: (..., blocks of outputs, blocks of inputs); or one for all.
        block: the size of a block of outputs and inputs.

    Raises:
        ValueError: there are other numbers of scales.
    """
    if scale.numel() == 1:
        return scale.reshape([1] * data.dim())
    if scale.dim() != data.dim():
        raise ValueError("scales of another rank")
    for place, width in enumerate(block):
        axis = data.dim() - 2 + place
        size = data.shape[axis]
        if scale.shape[axis] != -(-size // width):
            raise ValueError("another number of scales")
        if size % width:
            small = math.gcd(size, width)
            scale = scale.repeat_interleave(width // small, dim=axis).narrow(axis, 0, size // small)
    return scale

"""Floats of 8 bits with a scale for each block of 128 x 128, as DeepSeek, Qwen and MiniMax publish them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from patcomp.language.quantized.formats.base import Format, described_as
from patcomp.language.quantized.weight import StoredWeight


@dataclass(frozen=True)
class Float8(Format):
    """Source: `transformers.integrations.finegrained_fp8`; the scale multiplies."""

    block: tuple[int, int]

    name = "fp8"
    mark = "weight_scale_inv"
    parts = ("weight", "weight_scale_inv", "activation_scale")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "fp8")) is None:
            return None
        rows, columns = found.get("weight_block_size") or (128, 128)
        return cls((rows, columns))

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        data, scale = tensors["weight"], tensors["weight_scale_inv"].float()
        for axis, (size, block) in enumerate(zip(data.shape, self.block, strict=True)):
            if size % block:  # the last block is shorter
                small = math.gcd(size, block)
                scale = scale.repeat_interleave(block // small, dim=axis).narrow(axis, 0, size // small)
        return StoredWeight(data, 8, scale)

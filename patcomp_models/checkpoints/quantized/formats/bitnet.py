"""BitNet: -1, 0 and 1 in two bits, with one scale for a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight


@dataclass(frozen=True)
class BitNet(PartsFormat):
    """Source: `transformers.integrations.bitnet`; output r + i * outputs / 4 is in bits 2i of row r, with 1 added."""

    multiplies: bool
    """Whether the scale multiplies, as in `autobitlinear`; it divides in `bitlinear`."""
    notes: tuple[str, ...] = (
        "the weights are those of the checkpoint; its rounding of activations to 8 bits is left out",
    )

    name = "BitNet"
    mark = "weight_scale"
    parts = ("weight", "weight_scale")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "bitnet")) is None:
            return None
        return cls(found.get("linear_class", "bitlinear") == "autobitlinear")

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        packed, scale = tensors["weight"], tensors["weight_scale"].float().reshape(1, 1)
        data = torch.cat([(packed >> (2 * place)) & 3 for place in range(4)]).to(torch.int8) - 1
        return PackedWeight(data, 2, scale if self.multiplies else 1 / scale)

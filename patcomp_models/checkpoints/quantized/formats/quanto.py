"""quanto, as `QuantizedModelForCausalLM` writes it: integers in rows of a group, scales and shifts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, from_integers


@dataclass(frozen=True)
class Quanto(PartsFormat):
    """Source: `optimum.quanto.tensor`; the weight cut into rows of a group, part i of the rows in bits `bits * i` of a
    byte, and `scale * data - shift`."""

    qtypes: Mapping[str, Any]
    """`quanto_qmap.json`: the types of each module's weights and activations."""

    name = "quanto"
    in_groups = True
    mark = "weight._scale"
    parts = ("weight._data", "weight._data._data", "weight._scale", "weight._shift", "input_scale", "output_scale")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        found = described_as(config, "quanto")
        return None if found is None else cls(found.get("modules", {}))

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        scale = tensors["weight._scale"]
        if "weight._data" in tensors:
            data = tensors["weight._data"]
            scale = scale.reshape(1, 1) if scale.numel() == 1 else scale.reshape(data.shape[0], -1)
            return PackedWeight(data, 8, scale) if data.is_floating_point() else from_integers(data, 8, scale)
        packed = tensors["weight._data._data"]
        bits = int(str(self.qtypes.get(path, {}).get("weights", "qint4")).removeprefix("qint"))
        parts = [(packed >> (bits * place)) & ((1 << bits) - 1) for place in range(8 // bits)]
        rows = scale.numel()
        data = torch.cat(parts)[:rows]
        return PackedWeight(data, bits, scale.reshape(rows, 1), offset=-tensors["weight._shift"].reshape(rows, 1))

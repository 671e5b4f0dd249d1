"""ModelOpt of NVIDIA: float8 with one scale, and floats of 4 bits in blocks of 16 (NVFP4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.bits import nibbles
from patcomp.language.quantized.floats import e2m1_table
from patcomp.language.quantized.formats.base import PartsFormat, described_as
from patcomp.language.quantized.weight import StoredWeight

_READ = ("FP8", "NVFP4", "NVFP4_AWQ", "MIXED_PRECISION")


@dataclass(frozen=True)
class ModelOpt(PartsFormat):
    """Source: `modelopt.torch.export`; the scales multiply, and `weight_scale_2` is for the whole weight."""

    notes: tuple[str, ...] = (
        "the weights are those of the checkpoint; its rounding of activations to 4 or 8 bits is left out",
    )

    name = "ModelOpt"
    mark = "weight_scale"
    parts = ("weight", "weight_scale", "weight_scale_2", "input_scale", "pre_quant_scale")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "modelopt")) is None:
            return None
        algorithm = found.get("quant_algo") or (found.get("quantization") or {}).get("quant_algo")
        if algorithm not in _READ:
            raise LanguageModelError(f"the checkpoint is ModelOpt's {algorithm}; {', '.join(_READ)} are read")
        return cls()

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        weight, scale = tensors["weight"], tensors["weight_scale"]
        if "pre_quant_scale" in tensors:
            raise LanguageModelError(f"{path} scales its inputs (pre_quant_scale), which is not read")
        if weight.is_floating_point():
            scale = scale.float()
            return StoredWeight(
                weight, 8, scale.reshape(1, 1) if scale.numel() == 1 else scale.reshape(len(weight), -1)
            )
        whole = tensors["weight_scale_2"].float().reshape(1, 1)
        return StoredWeight(nibbles(weight), 4, StoredWeight(scale, 8, whole), table=e2m1_table())

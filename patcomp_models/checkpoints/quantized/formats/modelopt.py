"""ModelOpt of NVIDIA: float8 and int8 with scales of rows or one, int4 and floats of 4 bits (NVFP4) in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import nibbles, signed_integers
from patcomp_models.checkpoints.quantized.floats import e2m1_table
from patcomp_models.checkpoints.quantized.formats.base import CACHE_NOTE, PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, from_integers
from patcomp_models.errors import LanguageModelError

_READ = (
    "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "NVFP4_AWQ", "W8A16", "W8A8_SQ_PER_CHANNEL", "W4A16_AWQ",
    "MIXED_PRECISION",
)  # fmt: skip


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
        cache = (found.get("kv_cache_scheme"), found.get("kv_cache_quant_algo"))
        return cls((*cls.notes, CACHE_NOTE) if any(cache) else cls.notes)

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        weight, scale = tensors["weight"], tensors["weight_scale"]
        if "pre_quant_scale" in tensors:
            raise LanguageModelError(f"{path} scales its inputs (pre_quant_scale), which is not read")
        if weight.dtype != torch.uint8:
            scale = scale.float().reshape(1, 1) if scale.numel() == 1 else scale.float().reshape(len(weight), -1)
            return PackedWeight(weight, 8, scale) if weight.is_floating_point() else from_integers(weight, 8, scale)
        if scale.is_floating_point() and scale.dtype.itemsize == 1:
            whole = tensors["weight_scale_2"].float().reshape(1, 1)
            return PackedWeight(nibbles(weight), 4, PackedWeight(scale, 8, whole), table=e2m1_table())
        if "weight_scale_2" in tensors:
            raise LanguageModelError(f"{path} has 4-bit integers with two scales, which are not read")
        # two neighbouring outputs in a byte, negative integers in two's complement
        return from_integers(signed_integers(nibbles(weight.T).T ^ 8, 4), 4, scale)

"""compressed-tensors, as llm-compressor writes it: packed integers, bytes, and floats of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.bits import from_stream, nibbles, signed
from patcomp.language.quantized.floats import e2m1_table
from patcomp.language.quantized.formats.base import Format, described_as
from patcomp.language.quantized.weight import StoredWeight

_FORMS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized")


@dataclass(frozen=True)
class CompressedTensors(Format):
    """Source: `compressed_tensors.compressors`."""

    bits: int

    name = "compressed-tensors"
    mark = "weight_scale"
    parts = ("weight", "weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx",
             "weight_global_scale", "input_scale", "input_global_scale")  # fmt: skip

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "compressed-tensors")) is None:
            return None
        if found.get("format") not in _FORMS:
            raise LanguageModelError(
                f"the checkpoint has compressed-tensors' format {found.get('format')!r}; {', '.join(_FORMS)} are read"
            )
        bits = {group["weights"]["num_bits"] for group in found.get("config_groups", {}).values()}
        if len(bits) != 1:
            raise LanguageModelError(f"the checkpoint has groups of {sorted(bits)} bits; one number of bits is read")
        return cls(bits.pop())

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        scale, zeros = tensors["weight_scale"], tensors.get("weight_zero_point")
        if tensors.get("weight_g_idx") is not None:
            raise LanguageModelError(f"{path} has groups of inputs in another order (weight_g_idx), which is not read")
        scale = scale.reshape(1, 1) if scale.numel() == 1 else scale.reshape(scale.shape[0], -1)
        if "weight_global_scale" in tensors:
            whole = 1 / tensors["weight_global_scale"].float().reshape(1, 1)
            return StoredWeight(nibbles(tensors["weight_packed"]), 4, StoredWeight(scale, 8, whole), table=e2m1_table())
        if "weight" in tensors:
            shifted = None if zeros is None or not bool(zeros.any()) else zeros.reshape(scale.shape)
            return StoredWeight(tensors["weight"], 8, scale, shifted)
        outputs, inputs = (int(size) for size in tensors["weight_shape"])
        data = signed(from_stream(tensors["weight_packed"], self.bits, inputs), self.bits)
        if zeros is None or zeros.dtype != torch.int32:
            return StoredWeight(data, self.bits, scale, zeros)
        unpacked = from_stream(zeros.T.contiguous(), self.bits, outputs).T
        return StoredWeight(data, self.bits, scale, signed(unpacked, self.bits))

"""gpt-oss: experts of 4-bit floats in blocks of 32, each with a power of two (MXFP4); all else is in bfloat16."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import nibbles
from patcomp_models.checkpoints.quantized.floats import e2m1_table, powers_of_two
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.joining import transposed_weight
from patcomp_models.checkpoints.quantized.weight import PackedWeight


@dataclass(frozen=True)
class GptOss(PartsFormat):
    """Source: `transformers.integrations.mxfp4`; `gate_up_proj_blocks` (experts, outputs, inputs / 32, 16) and
    `gate_up_proj_scales` (experts, outputs, inputs / 32). The model has (experts, inputs, outputs)."""

    name = "MXFP4"
    mark = "blocks"
    parts = ("blocks", "scales")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        return None if described_as(config, "mxfp4") is None else cls()

    def places(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        given = set(names)
        paths = [name.removesuffix("_blocks") for name in sorted(given) if name.endswith("_blocks")]
        return {path: {part: f"{path}_{part}" for part in self.parts if f"{path}_{part}" in given} for path in paths}

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        data, scales = nibbles(tensors["blocks"]).flatten(-2), tensors["scales"]
        if data.shape != (*scales.shape[:-1], scales.shape[-1] * 32):
            raise ValueError("the number of scales is not that of blocks")
        made = transposed_weight(PackedWeight(data, 4, powers_of_two(scales), table=e2m1_table()))
        assert isinstance(made, PackedWeight)
        return made

"""Floats of 8 bits with a scale for each block of 128 x 128, as DeepSeek, Qwen and MiniMax publish them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.floats import in_blocks
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight
from patcomp_models.errors import LanguageModelError


@dataclass(frozen=True)
class Float8(PartsFormat):
    """Source: `transformers.integrations.finegrained_fp8`; the scale multiplies. All experts may be in one tensor."""

    block: tuple[int, int]

    name = "fp8"
    mark = "weight_scale_inv"
    parts = ("weight", "weight_scale_inv", "activation_scale", "input_scale")
    notes = ("the weights are float8 as in the checkpoint; its rounding of activations to float8 is left out",)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "fp8")) is None:
            return None
        if found.get("expert_dtype", "fp8") not in (None, "fp8", "fp8_e4m3"):
            raise LanguageModelError(
                f"the checkpoint is fp8 with experts of {found['expert_dtype']}; experts of fp8 are read"
            )
        rows, columns = found.get("weight_block_size") or (128, 128)
        return cls((rows, columns))

    def places(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        given = [*names]
        found = super().places(given)
        for name in given:
            whole = name.removesuffix("_scale_inv")
            if whole != name and not name.endswith(".weight_scale_inv"):  # `experts.gate_up_proj_scale_inv`
                found[whole] = {"weight": whole, "weight_scale_inv": name}
        return found

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        data, scale = tensors["weight"], tensors["weight_scale_inv"].float()
        if data.dtype != torch.float8_e4m3fn:
            raise LanguageModelError(f"{path}.weight is {data.dtype} beside a scale of float8; float8_e4m3fn is read")
        return PackedWeight(data, 8, in_blocks(data, scale, self.block))

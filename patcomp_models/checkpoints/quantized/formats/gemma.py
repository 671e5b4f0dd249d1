"""Gemma's quantisation-aware checkpoints: integers of 2, 4 and 8 bits with scales of outputs, or of parts of a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import from_stream, signed_integers
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, from_integers


@dataclass(frozen=True)
class Gemma(PartsFormat):
    """Source: `transformers.integrations.gemma_quant`; the lowest bits first, half of the range added."""

    bits: int
    by_module: Mapping[str, Any]
    """The bits of modules by regular expressions; the first that is found in a module's path counts."""
    notes: tuple[str, ...] = ("the weights are those of the checkpoint; its rounding of activations is left out",)

    name = "Gemma"
    mark = "weight_scale"
    parts = ("weight", "weight_scale", "input_activation_scale", "output_activation_scale")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "gemma")) is None:
            return None
        return cls(int(found.get("num_bits", 4)), found.get("module_quant_configs") or {})

    def places(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        given = [*names]
        tables = [name.removesuffix(".embedding_scale") for name in given if name.endswith(".embedding_scale")]
        embeddings = {
            f"{path}.weight": {"weight": f"{path}.embedding_quantized", "weight_scale": f"{path}.embedding_scale"}
            for path in tables
        }
        return {**super().places(given), **embeddings}

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        weight, scale = tensors["weight"], tensors["weight_scale"].float()
        if weight.dtype == torch.int8:
            return from_integers(weight, 8, scale)
        own: Mapping[str, Any] = next(
            (each for pattern, each in self.by_module.items() if re.search(pattern, path)), {}
        )
        bits = int(own.get("num_bits", self.bits))
        return from_integers(signed_integers(from_stream(weight, bits, weight.shape[1] * 8 // bits), bits), bits, scale)

"""bitsandbytes: tables of 16 floats (nf4, fp4) with a scale for 64 elements, or bytes with a scale for each output."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import nibbles
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight
from patcomp_models.errors import LanguageModelError

_STATE = "quant_state.bitsandbytes__"


@dataclass(frozen=True)
class BitsAndBytes(PartsFormat):
    """Source: `bitsandbytes.functional.QuantState`; blocks are of the flattened weight."""

    notes: tuple[str, ...] = ()

    name = "bitsandbytes"
    mark = "weight.absmax"
    parts = ("weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "bitsandbytes")) is None:
            return None
        eight = bool(found.get("load_in_8bit") or found.get("_load_in_8bit"))
        note = (
            "the weights are the bytes of the checkpoint; bitsandbytes' rounding of activations to 8 bits is left out"
        )
        return cls((note,) if eight else ())

    def places(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        given = dict.fromkeys(names)
        found = {}
        for path in (name.removesuffix(".SCB") for name in given if name.endswith(".SCB")):
            parts = ("weight", "SCB", "weight_format")
            found[f"{path}.weight"] = {part: f"{path}.{part}" for part in parts if f"{path}.{part}" in given}
        for weight, others in super().places(given).items():
            state = next((name for name in given if name.startswith(f"{weight}.{_STATE}")), None)
            found[weight] = others if state is None else {**others, "state": state}
        return found

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        if "SCB" in tensors:
            return PackedWeight(tensors["weight"], 8, tensors["SCB"].float()[:, None] / 127)
        state = json.loads(bytes(tensors["state"].tolist()))
        outputs, inputs = state["shape"]
        block = int(state["blocksize"])
        if inputs % block:
            raise LanguageModelError(
                f"{path} has blocks of {block} elements that go across rows of {inputs}, which Core AI's cannot"
            )
        packed = tensors["weight"].contiguous().view(torch.uint8).flatten()
        if packed.numel() * 2 != outputs * inputs:
            raise ValueError("another number of elements than the shape says")
        data = nibbles(packed, high_first=True).reshape(outputs, inputs)
        absmax = tensors["weight.absmax"].reshape(outputs, inputs // block)
        scale: Tensor | PackedWeight = absmax.float()
        if absmax.dtype == torch.uint8:
            scale = _nested(absmax, tensors, int(state["nested_blocksize"]), float(state["nested_offset"]))
        return PackedWeight(data, 4, scale, table=tensors["weight.quant_map"].float())


def _nested(absmax: Tensor, tensors: Mapping[str, Tensor], block: int, offset: float) -> Tensor | PackedWeight:
    """Scales that are `table[absmax] * scale + offset`, kept so where a scale is for whole rows or parts of a row."""
    table, outer = (tensors[f"weight.nested_{name}"].float() for name in ("quant_map", "absmax"))
    rows, columns = absmax.shape
    wide = outer.repeat_interleave(block)[: absmax.numel()].reshape(rows, columns)
    if block % columns == 0:
        height = math.gcd(rows, block // columns)
        outer = wide[::height, :1]
    elif columns % block == 0:
        outer = wide[:, ::block]
    else:  # as bitsandbytes computes it
        return table[absmax.long()] * wide + offset
    return PackedWeight(absmax, 8, outer, offset=torch.full_like(outer, offset), table=table)

"""GPTQ, as AutoGPTQ and gptqmodel write it: integers packed along the inputs, scales and zero points of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.bits import from_stream
from patcomp.language.quantized.formats.base import PartsFormat, described_as
from patcomp.language.quantized.weight import StoredWeight, integers


@dataclass(frozen=True)
class GPTQ(PartsFormat):
    """Source: `gptqmodel.nn_modules.qlinear`; `qweight` (inputs / n, outputs), `qzeros` (groups, outputs / n).

    AutoRound packs the same way.
    """

    bits: int
    is_first_version: bool
    """Whether zero points are stored with 1 subtracted."""

    name = "GPTQ"
    mark = "qweight"
    parts = ("qweight", "qzeros", "scales", "g_idx")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        found = described_as(config, "gptq")
        packing = "gptq"
        if found is None and (found := described_as(config, "auto-round")) is not None:
            packing = str(found.get("packing_format", "auto_round:auto_gptq"))
        if found is None or "gptq" not in packing:
            return None
        bits = found.get("bits")
        if bits not in (2, 3, 4, 8):
            raise LanguageModelError(f"the checkpoint is GPTQ of {bits} bits; 2, 3, 4 and 8 are read")
        return cls(bits, found.get("checkpoint_format", "gptq") != "gptq_v2")

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        words, zeros, scales = tensors["qweight"], tensors["qzeros"], tensors["scales"].T
        inputs, outputs = words.shape[0] * 32 // self.bits, words.shape[1]
        if scales.shape[0] != outputs or inputs % scales.shape[1]:
            raise LanguageModelError(
                f"{path} has {inputs} inputs and {outputs} outputs, and scales of {scales.shape[1]} groups and "
                f"{scales.shape[0]} outputs; the file is damaged, or config.json has other bits"
            )
        data = from_stream(words.T, self.bits, inputs)
        shifted = from_stream(zeros, self.bits, outputs).T.to(torch.int16) + int(self.is_first_version)
        order, groups = None, tensors.get("g_idx")
        if groups is not None and bool((groups.diff() < 0).any()):
            order = groups.argsort(stable=True)
            data = data[:, order]
        return integers(data, self.bits, scales, shifted, order)

"""GPTQ, as AutoGPTQ and gptqmodel write it: integers packed along the inputs, scales and zero points of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.bits import from_words
from patcomp.language.quantized.formats.base import Format, described_as
from patcomp.language.quantized.weight import StoredWeight


@dataclass(frozen=True)
class GPTQ(Format):
    """Source: `gptqmodel.nn_modules.qlinear`; `qweight` (inputs / n, outputs), `qzeros` (groups, outputs / n)."""

    bits: int
    is_first_version: bool
    """Whether zero points are stored with 1 subtracted."""

    name = "GPTQ"
    mark = "qweight"
    parts = ("qweight", "qzeros", "scales", "g_idx")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "gptq")) is None:
            return None
        bits = found.get("bits")
        if bits not in (2, 4, 8):
            raise LanguageModelError(f"the checkpoint is GPTQ of {bits} bits; 2, 4 and 8 are read")
        return cls(bits, found.get("checkpoint_format", "gptq") != "gptq_v2")

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        data = from_words(tensors["qweight"], self.bits, 0).T
        zeros = from_words(tensors["qzeros"], self.bits, 1).T.to(torch.int16) + int(self.is_first_version)
        scales, groups = tensors["scales"].T, tensors.get("g_idx")
        order = None
        if groups is not None and bool((groups.diff() < 0).any()):
            order = groups.argsort(stable=True)
            data = data[:, order]
        if data.shape[1] % scales.shape[1]:
            raise LanguageModelError(f"{path} has {data.shape[1]} inputs in {scales.shape[1]} groups of other sizes")
        middle = 1 << (self.bits - 1)
        if bool((zeros == middle).all()):
            return StoredWeight((data.to(torch.int16) - middle).to(torch.int8), self.bits, scales, order=order)
        if int(zeros.max()) < 1 << self.bits:
            return StoredWeight(data, self.bits, scales, zeros.to(torch.uint8), order=order)
        # a zero point of 2 ** bits is no integer of so many bits
        return StoredWeight(data, self.bits, scales, offset=-(zeros.float() * scales.float()), order=order)

"""GPTQ, as AutoGPTQ and gptqmodel write it: integers packed along the inputs, scales and zero points of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import from_stream
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, from_integers
from patcomp_models.errors import LanguageModelError

_BITS = (2, 3, 4, 8)


@dataclass(frozen=True)
class GPTQ(PartsFormat):
    """Source: `gptqmodel.nn_modules.qlinear`; `qweight` (inputs / n, outputs), `qzeros` (groups, outputs / n).

    The numbers of bits of a weight follow from its shapes, because layers of one checkpoint may differ in them.
    """

    is_first_version: bool
    """Whether zero points are stored with 1 subtracted."""

    name = "GPTQ"
    mark = "qweight"
    parts = ("qweight", "qzeros", "scales", "g_idx")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "gptq")) is None:
            return None
        version = found.get("checkpoint_format") or found.get("format") or "gptq"
        if version not in ("gptq", "gptq_v2") or found.get("bits") not in _BITS:
            raise LanguageModelError(
                f"the checkpoint is GPTQ of {found.get('bits')} bits in the format {version}; 2, 3, 4 and 8 bits in "
                "the formats gptq and gptq_v2 are read"
            )
        return cls(version == "gptq")

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        words, zeros, scales = tensors["qweight"], tensors["qzeros"], tensors["scales"].T
        outputs, count = scales.shape
        bits = 32 * zeros.shape[1] // outputs
        if bits not in _BITS or 32 * zeros.shape[1] % outputs or words.shape[1] != outputs:
            raise ValueError("no number of bits goes with the shapes")
        inputs = 32 * words.shape[0] // bits
        order, groups = None, tensors.get("g_idx")
        if groups is not None and bool((groups.diff() < 0).any()):
            order = groups.argsort(stable=True)
            groups = groups[order]
        even = torch.arange(inputs) * count // inputs
        if inputs % count or (groups is not None and not torch.equal(groups.long(), even)):
            raise LanguageModelError(
                f"{path} has {inputs} inputs in {count} groups of different sizes, which are no blocks"
            )
        data = from_stream(words.T, bits, inputs)
        shifted = from_stream(zeros, bits, outputs).T.to(torch.int16) + int(self.is_first_version)
        return from_integers(data if order is None else data[:, order], bits, scales, shifted, order)

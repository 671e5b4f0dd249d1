"""AWQ, as AutoAWQ writes it: integers of 4 bits, in words whose integers may be in an order of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import from_words
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, from_integers
from patcomp_models.errors import LanguageModelError

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which column each integer of a word is of."""


@dataclass(frozen=True)
class AWQ(PartsFormat):
    """Source: `awq.modules.linear.gemm`, `qweight` (inputs, outputs / 8), `qzeros` (groups, outputs / 8); and `gemv`,
    `qweight` (outputs, inputs / 8), `qzeros` (outputs, groups / 8 and more)."""

    by_output: bool = False
    """Whether the kind is gemv: a row of words for each output."""
    group: int = -1
    """The inputs of a group; all if it is negative."""

    name = "AWQ"
    mark = "qweight"
    parts = ("qweight", "qzeros", "scales")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "awq")) is None:
            return None
        kind = str(found.get("version") or found.get("format") or "gemm").lower()
        if kind not in ("gemm", "gemv") or found.get("bits", 4) != 4:
            raise LanguageModelError(
                f"the checkpoint is AWQ of the kind {kind} with {found.get('bits', 4)} bits; gemm and gemv with 4 are "
                "read"
            )
        return cls(kind == "gemv", int(found.get("group_size", -1)))

    @property
    def group_sizes(self) -> Collection[int]:
        return (self.group,) if self.group > 0 else ()

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        words, zeros, scales = tensors["qweight"], tensors["qzeros"], tensors["scales"]
        if not self.by_output:
            return from_integers(from_words(words, 4, 1, _ORDER).T, 4, scales.T, from_words(zeros, 4, 1, _ORDER).T)
        data = from_words(words, 4, 1)
        groups = data.shape[1] // self.group if self.group > 0 else 1
        # zero points and scales are padded to whole words
        return from_integers(data, 4, scales[:, :groups], from_words(zeros, 4, 1)[:, :groups])

"""AWQ, as AutoAWQ writes it: integers of 4 bits, in words whose integers are in an order of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.bits import from_words
from patcomp.language.quantized.formats.base import Format, described_as
from patcomp.language.quantized.weight import StoredWeight

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which column each integer of a word is of."""


@dataclass(frozen=True)
class AWQ(Format):
    """Source: `awq.modules.linear.gemm`; `qweight` (inputs, outputs / 8), `qzeros` (groups, outputs / 8)."""

    name = "AWQ"
    mark = "qweight"
    parts = ("qweight", "qzeros", "scales")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "awq")) is None:
            return None
        kind = str(found.get("version", "gemm")).lower(), found.get("bits", 4)
        if kind != ("gemm", 4):
            raise LanguageModelError(
                f"the checkpoint is AWQ of the kind {kind[0]} with {kind[1]} bits; gemm with 4 is read"
            )
        return cls()

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        data, zeros = (from_words(tensors[name], 4, 1, _ORDER).T for name in ("qweight", "qzeros"))
        return StoredWeight(data, 4, tensors["scales"].T, zeros)

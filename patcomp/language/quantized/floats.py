"""Floats of 4 and 8 bits, as tables and scales."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.language.quantized.weight import E2M1, StoredWeight


def e2m1_table() -> Tensor:
    """The 16 floats of 4 bits by their bits; the highest bit is the sign."""
    return torch.tensor([*E2M1, *(-number for number in E2M1)])


def powers_of_two(exponents: Tensor) -> StoredWeight:
    """Scales that are powers of two, stored as bytes with 127 added (e8m0); those that float16 lacks become 0 or
    infinity there, which is an error if they are used."""
    return StoredWeight(exponents.view(torch.uint8), 8, None, table=torch.exp2(torch.arange(256.0) - 127))

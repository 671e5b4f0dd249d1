"""Whether two ways to compute a tensor agree."""

from __future__ import annotations

import torch
from torch import Tensor

_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 2e-2}


def is_close(expected: Tensor, result: Tensor) -> bool:
    """Whether a tensor equals another one of the same shape and type, but for the rounding of floats.

    Floats may differ by 1e-3 of themselves or of the largest finite one (1e-2 for float16, 2e-2 for bfloat16). Integers
    and booleans must be equal.
    """
    if expected.shape != result.shape or expected.dtype != result.dtype:
        return False
    if not expected.is_floating_point() and not expected.is_complex():
        return torch.equal(expected, result)
    tolerance = _TOLERANCES.get(expected.dtype, 1e-3)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    expected, result = expected.to(wide), result.to(wide)
    largest = float(expected.abs().nan_to_num(nan=0.0, posinf=0.0).max()) if expected.numel() else 0.0
    return torch.allclose(expected, result, tolerance, tolerance * largest, equal_nan=True)

"""Sums of which special functions are made."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """By Horner's rule, the coefficient of the highest power first."""
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def chebyshev_series(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of c[k] T_k(x / 2) with half of c[0], by Clenshaw's recurrence; c[0] is the last of `coefficients`."""
    last, one_before, two_before = torch.full_like(x, coefficients[0]), torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in coefficients[1:]:
        last, one_before, two_before = x * last - one_before + coefficient, last, one_before
    return 0.5 * (last - two_before)

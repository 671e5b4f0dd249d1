"""Whether one rounding of weights makes an output worse than another, beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MARGIN = 1.25
"""How many times larger than without examples the error of an output may be, beside chance."""


def worse(exact: Sequence[Tensor], found: Sequence[Tensor], plain: Sequence[Tensor]) -> str:
    """How rounding by examples makes an output worse than rounding to nearest, beyond chance; empty if it does not.

    Two errors of the same kind differ by chance, the more the fewer elements there are: the logarithm of the ratio of
    two mean squares of n normal numbers each has the standard deviation 2 / sqrt(n).

    Args:
        exact, found, plain: the output for each example: of the program, and with both roundings.
    """
    elements = sum(each.numel() for each in exact)
    if not elements:
        return ""
    if not (exact[0].is_floating_point() or exact[0].is_complex()):
        changed, before = _changed(exact, found), _changed(exact, plain)
        if changed <= before + 3 * math.sqrt(before + 1):
            return ""
        return f"{changed} of {elements} elements change with rounding by examples, {before} without"
    error, before_ = _error(exact, found), _error(exact, plain)
    least = max(before_, torch.finfo(exact[0].dtype).eps)
    if error <= _MARGIN * math.exp(3 / math.sqrt(elements)) * least:
        return ""
    return f"the error is {error:.2g} of the output with rounding by examples, {before_:.2g} without"


def _changed(exact: Sequence[Tensor], other: Sequence[Tensor]) -> int:
    """How many elements differ."""
    return sum(int((one != two).sum()) for one, two in zip(exact, other, strict=True))


def _error(exact: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The root of the squared distance over the squared length; the distance, if the length is 0."""
    distance = sum(_squared(one, two) for one, two in zip(exact, other, strict=True))
    length = sum(_squared(one, torch.zeros_like(one)) for one in exact)
    return math.sqrt(distance / length if 0 < length < math.inf else distance)


def _squared(exact: Tensor, other: Tensor) -> float:
    """The squared distance of two tensors; infinite if only one of them has NaN or an infinity at a place."""
    same = (exact == other) | (exact.isnan() & other.isnan())
    wide = torch.complex128 if exact.is_complex() else torch.float64
    distance = torch.where(same, 0, exact.to(wide) - other.to(wide)).abs().square().sum()
    return float(distance.nan_to_num(math.inf))

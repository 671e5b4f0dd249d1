"""Distinct values. Runs of equal elements are found, and the first of each is selected."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import FurtherResults, decomposition, example

_NOT_ASKED = dict.fromkeys(("options", "axes"), FurtherResults("torch.unique drops what was not asked for"))


def _runs(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each element: whether it starts a run of equal elements, the number of its run, and the length of the run."""
    begins = torch.cat([torch.ones_like(values[:1], dtype=torch.bool), values[1:] != values[:-1]])
    number = begins.to(torch.int32).cumsum(0) - 1
    same = number.unsqueeze(0) == number.unsqueeze(1)
    return begins, number, same.sum(0)


def _distinct(values: Tensor, order: Tensor | None, shape: torch.Size) -> tuple[Tensor, Tensor, Tensor]:
    begins, number, length = _runs(values)
    # element order[i] of the input is at i, so its run's number goes there
    inverse = number if order is None else torch.zeros_like(number).scatter(0, order, number)
    selected = values.masked_select(begins)
    return selected, inverse.reshape(shape), length.masked_select(begins)


@decomposition(
    "aten._unique2",
    unspecified=_NOT_ASKED,
    examples=[example("3x4xsi32[0,3]", True, True, True), example("7xf32", return_inverse=True)],
)
def unique(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    "the distinct elements in ascending order, the place of each element among them, and how often each occurs"
    values, order = self.flatten().sort()
    selected, inverse, counts = _distinct(values, order, self.shape)
    nothing = torch.empty(0, dtype=torch.int64)
    return selected, inverse if return_inverse or return_counts else nothing, counts if return_counts else nothing


@decomposition(
    "aten.unique_consecutive",
    unspecified=_NOT_ASKED,
    examples=[example("3x4xsi32[0,1]", True, True), example("9xf32[0,1]", return_counts=True)],
)
def unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    "the first of each run of equal elements, the number of each element's run, and the length of each run"
    if dim is not None and self.dim() != 1:
        return NotImplemented
    selected, inverse, counts = _distinct(self.flatten(), None, self.shape)
    nothing = torch.empty(0, dtype=torch.int64)
    return selected, inverse if return_inverse else nothing, counts if return_counts else nothing

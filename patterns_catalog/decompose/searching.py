"""Searches in sorted sequences, and histograms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from patterns_catalog.decompose.promotion import in_one_type

_RISING = torch.tensor([-1.5, -0.5, -0.5, 0.0, 0.25, 1.0, 2.0])


def _insertion_points(
    sequence: Tensor, values: Tensor | float, right: bool, sorter: Tensor | None = None
) -> Tensor:  # fmt: skip
    """How many elements of each sequence stand before a value: a binary search by steps that halve.

    Elements stand before a value if they are less, or with `right`, not greater; NaN is greater than any.
    """
    if not isinstance(values, Tensor):
        values = torch.full((), values, device=sequence.device)
    size = sequence.size(-1)
    shape = values.shape
    if sequence.dim() == 1:
        values = values.reshape(-1)
    found = torch.zeros_like(values, dtype=torch.int64)
    step = 1 << size.bit_length() >> 1
    while step:
        candidate = found + step
        position = (candidate - 1).clamp(max=size - 1)
        element = sequence.gather(-1, position if sorter is None else sorter.gather(-1, position))
        after = element > values if right else element >= values
        found = torch.where(after | (candidate > size), found, candidate)
        step >>= 1
    return found.reshape(shape)


@decomposition("aten.searchsorted.Tensor", "aten.searchsorted.Scalar", examples=[
    example(_RISING, "2x3xf32"), example(torch.stack([_RISING, _RISING + 1]), "2x5xf32", right=True),
    example("4xsi32[3,3]", "3xsi32[2,4]", side="right", out_int32=True), example("0xf32", "4xf32"),
    example(_RISING.flip(0), "4xf32", sorter=torch.arange(6, -1, -1)),
    example(_RISING, 0, op="aten.searchsorted.Scalar"),
    example("3xsi32[2,2]", 2.5, right=True, op="aten.searchsorted.Scalar"),
])  # fmt: skip
def searchsorted(
    sorted_sequence: Tensor, self: Tensor | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    "a binary search, unrolled; the result means nothing if the sequence is not sorted, as in PyTorch"
    found = _insertion_points(sorted_sequence, self, right or side == "right", sorter)
    return found.to(torch.int32) if out_int32 else found


@decomposition("aten.bucketize.Tensor", "aten.bucketize.Scalar", examples=[
    example("2x3xf32", _RISING), example("4xsi32[1,3]", "3xsi32[2,2]", out_int32=True, right=True),
    example(0.5, _RISING, op="aten.bucketize.Scalar"),
])  # fmt: skip
def bucketize(
    self: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:  # fmt: skip
    "the search of values in boundaries"
    found = _insertion_points(boundaries, self, right)
    return found.to(torch.int32) if out_int32 else found


@decomposition("aten.isin.Tensor_Tensor", examples=[
    example("2x3xsi32[0,5]", "3xsi32[0,5]"), example("5xf32[0,1]", torch.tensor([torch.nan, 0.5] * 10), invert=True),
    example(torch.tensor([torch.inf, torch.nan, 1.0]), torch.tensor([torch.nan, torch.inf, 2.0] * 8)),
    example("4xsi64[0,40]", "30xsi32[0,40]"), example("si32", "si32", assume_unique=True), example("3xf32", "0xf32"),
])  # fmt: skip
def isin(
    elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:  # fmt: skip
    """Whether each element is among others; many others are sorted and searched.

    PyTorch's decomposition searches NaN, too, which hides infinities.
    """
    elements, others = in_one_type(elements, test_elements.reshape(-1))
    count, size = others.numel(), elements.numel()
    if isinstance(count, int) and isinstance(size, int) and count < 10 * max(size, 1) ** 0.145:
        found = (elements.unsqueeze(-1) == others).any(-1)
    else:
        ordered = others.sort().values  # NaN is the last
        keys = torch.where(ordered.isnan(), torch.inf, ordered) if ordered.is_floating_point() else ordered
        place = torch.searchsorted(keys, elements.contiguous()).clamp(max=count - 1)
        found = ordered[place] == elements
    return ~found if invert else found


def _range_of(x: Tensor, given: Sequence[float] | None) -> tuple[Tensor, Tensor]:
    """The outer edges of bins: the given ones, the smallest and largest value (a half apart if equal), or 0 and 1."""
    if given or not x.numel():
        lowest, highest = (x.new_full((), bound) for bound in given or (0.0, 1.0))
    else:
        lowest, highest = x.min(), x.max()
    apart = (lowest == highest).to(x.dtype) * 0.5
    return lowest - apart, highest + apart


def _histogram(x: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Tensor:
    """An element is in the last bin whose lower edge it reaches; the last upper edge is inside too."""
    bins = edges.size(0) - 1
    x = x.reshape(-1)
    inside = (x >= edges[0]) & (x <= edges[-1])
    position = (_insertion_points(edges, x, right=True) - 1).clamp(min=0, max=bins - 1)
    wide = torch.float32
    amount = inside.to(wide) if weight is None else torch.where(inside, weight.reshape(-1).to(wide), 0.0)
    counts = torch.zeros(bins, device=x.device).scatter_add(0, position, amount).to(x.dtype)
    return counts / (counts.sum() * (edges[1:] - edges[:-1])) if density else counts


@decomposition("aten.histogram.bin_ct", examples=[
    example("2x9xf32", 4), example("9xf32", 3, range=[-1.0, 1.0], weight="9xf32[0,1]", density=True),
    example("2x0xf32", 4),
])  # fmt: skip
def histogram(
    self: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    "the number of elements, or the share of the weight, in each of equal bins; and the edges of the bins"
    low, high = _range_of(self.reshape(-1), range)
    share = torch.linspace(0, 1, bins + 1, dtype=self.dtype, device=self.device)
    edges = torch.where(share <= 0.5, low + (high - low) * share, high - (high - low) * (1 - share))
    return _histogram(self, edges, weight, density), edges


@decomposition("aten.histogram.bins_tensor", examples=[example("2x9xf32", torch.tensor([-1.0, 0.0, 0.5]))])
def histogram_of_edges(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    "a histogram with given edges"
    return _histogram(self, bins, weight, density), bins.clone()

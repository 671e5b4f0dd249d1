"""Order statistics, by a stable sort: which of equal values has the index PyTorch leaves open."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import FurtherResults, Rejected, Rule, decomposition, example

_TIES = dict.fromkeys(
    ("options", "ranks", "sizes", "element types"), FurtherResults("which of equal values has the index")
)


def _sorted(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.sort.stable(x, stable=True, dim=dim)


def _only(x: Tensor) -> tuple[Tensor, Tensor]:
    """The value and index of a tensor without dimensions."""
    return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)


def _picked(values: Tensor, order: Tensor, dim: int, position: Tensor, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The sorted values and their indices at a position, which has `dim` as 1."""
    value, index = values.gather(dim, position), order.gather(dim, position)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@decomposition("aten.kthvalue", unspecified=_TIES, examples=[
    example("2x9xf32", 3), example("5x2xsi32", 5, 0, True), example("f32", 1),
])  # fmt: skip
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    "the k-th of the sorted values, NaN being the largest"
    if self.dim() == 0:
        return _only(self)
    values, order = _sorted(self, dim)
    value, index = values.narrow(dim, k - 1, 1), order.narrow(dim, k - 1, 1)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _median(name: str, *, ignore_nan: bool) -> tuple[Rule, Rule]:
    def position(values: Tensor, dim: int) -> Tensor:
        """Where the median is among sorted values; NaN stands last."""
        size = values.size(dim)
        ordered = (values == values).sum(dim, keepdim=True)
        if ignore_nan:
            return (ordered - 1).clamp(min=0) // 2
        return torch.where(ordered < size, ordered, (size - 1) // 2)

    @decomposition(f"aten.{name}.dim", name=f"decompose {name} of a dimension", examples=[
        example("2x9xf32", 1), example("4x3xsi32", 0, True), example("f32", 0),
    ])  # fmt: skip
    def of_dimension(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        "the lower one of the two in the middle of the sorted values; NaN is the median, or left out"
        if self.dim() == 0:
            return _only(self)
        values, order = _sorted(self, dim)
        return _picked(values, order, dim, position(values, dim), keepdim)

    @decomposition(
        f"aten.{name}", name=f"decompose {name}", examples=[example("3x4xf32"), example("5xsi32"), example("0xf32")]
    )
    def of_all(self: Tensor) -> Tensor:
        "the median of all values; of none it is NaN"
        if self.numel() == 0:
            if not self.is_floating_point():
                raise Rejected("the median of an empty integer tensor is undefined")
            return self.new_full((), float("nan"))
        values, _ = _sorted(self.reshape(-1), 0)
        return values.gather(0, position(values, 0)).squeeze(0)

    return of_dimension, of_all


median_of_dimension, median = _median("median", ignore_nan=False)
nanmedian_of_dimension, nanmedian = _median("nanmedian", ignore_nan=True)


_NO_NUMBER = {"NaN": "what PyTorch gives depends on where the NaN stand"}


@decomposition("aten.mode", unspecified=_TIES | _NO_NUMBER, examples=[
    example("2x9xsi32[0,3]"), example("9x2xf32", 0, True), example("7xi1"), example("f32"),
])  # fmt: skip
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent value, the smallest of several, and where it is last.

    In the sorted values, the first longest distance of an element from the start of its run is the end of that run.
    """
    if self.dim() == 0:
        return _only(self)
    values, order = _sorted(self, dim)
    size = self.size(dim)
    shape = [1] * self.dim()
    shape[dim] = size
    places = torch.arange(size, device=self.device).reshape(shape)
    changes = values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)
    starts = torch.cat([torch.zeros_like(order.narrow(dim, 0, 1)), changes * places.narrow(dim, 1, size - 1)], dim)
    distance = places - torch.cummax(starts, dim).values
    return _picked(values, order, dim, distance.argmax(dim, keepdim=True), keepdim)

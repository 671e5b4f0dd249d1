"""Reads and writes at places, down to gathers, `index_put` and `scatter_reduce`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example


@decomposition("aten.put", examples=[
    example("3x4xf32", "2x3xsi64[-12,11]", "2x3xf32", True), example("f32", "si64[0,0]", "1xf32"),
])  # fmt: skip
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    "values written to, or added at, places of the flattened tensor"
    flat = self.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(self.shape)


@decomposition("aten.index_reduce", examples=[
    example("4x3xf32", 0, "5xsi64[0,3]", "5x3xf32", "mean", include_self=False),
    example("2x4xsi32[-9,9]", -1, "2xsi64[0,3]", "2x2xsi32[-9,9]", "prod"),
    example("f32", 0, "1xsi64[0,0]", "f32", "amax"),
])  # fmt: skip
def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    "slices of the source combined with the slices of `self` that the index names"
    if self.dim() == 0:
        return index_reduce_of(self.reshape(1), 0, index, source, reduce, include_self).reshape(())
    return index_reduce_of(self, dim, index, source, reduce, include_self)


def index_reduce_of(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool) -> Tensor:
    shape = [index.numel() if axis == dim % x.dim() else size for axis, size in enumerate(x.shape)]
    places = index.reshape([-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]).expand(shape)
    return x.scatter_reduce(dim, places, source.reshape(shape), reduce, include_self=include_self)


def _written(x: Tensor, source: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
    """`x` with the elements of one of its views replaced; the view is taken of the elements' numbers."""
    places = view(torch.arange(x.numel(), device=x.device).reshape(x.shape))
    source = source.to(x.dtype).expand(places.shape)
    return x.reshape(-1).index_put((places.reshape(-1),), source.reshape(-1)).reshape(x.shape)


@decomposition("aten.diagonal_scatter", examples=[
    example("3x4xf32", "3xf32", 1), example("3x2x4xf32", "2x2xf32", -1, 0, -1),
])  # fmt: skip
def diagonal_scatter(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    "x with a diagonal replaced"
    if self.dim() < 2:
        raise Rejected("diagonal_scatter needs a tensor of at least two dimensions")
    return _written(self, src, lambda numbers: numbers.diagonal(offset, dim1, dim2))


@decomposition("aten.as_strided_scatter", examples=[example("3x4xf32", "2x2xf32", [2, 2], [4, 2], 1)])
def as_strided_scatter(
    self: Tensor, src: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Tensor:
    "x with the elements replaced that strides address in its memory"
    if not self.is_contiguous():
        raise Rejected("as_strided_scatter needs a contiguous tensor; call .contiguous() first")
    return _written(self, src, lambda numbers: numbers.as_strided(size, stride, storage_offset or 0))


@decomposition("aten.resize", examples=[example("3x4xf32", [2, 5])])
def resize(self: Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    "the first elements in another shape"
    count = torch.Size(size).numel()
    if count > self.numel() or memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        raise Rejected("a resize that adds elements or changes the memory format is not supported")
    return self.reshape(-1)[:count].reshape(size)


@decomposition("aten.nonzero_static", examples=[
    example("3x4xsi32[0,1]", size=9), example("3x4xf32", size=2, fill_value=7), example("5xi1", size=6),
])  # fmt: skip
def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    "the coordinates of the elements that are not zero, cut or filled up to the given number"
    if self.dim() == 0:
        return torch.full((size, 0), fill_value, device=self.device)  # a coordinate has no numbers
    true = self.reshape(-1) != 0
    number = true.to(torch.int64).cumsum(0)
    row = torch.where(true & (number <= size), number - 1, size)  # one row more, for what does not count
    columns = []
    for axis, count in enumerate(self.shape):
        own = torch.arange(count, device=self.device).reshape([count, *[1] * (self.dim() - axis - 1)])
        columns.append(own.expand(self.shape).reshape(-1, 1))
    rows = torch.full((size + 1, self.dim()), fill_value, device=self.device)
    return rows.index_put((row,), torch.cat(columns, 1))[:size]


_ANY_NUMBERS = dict.fromkeys(("options", "axes", "sizes", "element types"), "the numbers are whatever was in memory")


@decomposition("aten.empty.memory_format", unspecified=_ANY_NUMBERS, examples=[example([0, 2])])
def empty(
    size: list[int], *, dtype: torch.dtype | None = None, layout: torch.layout | None = None,
    device: torch.device | None = None, pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> Tensor:  # fmt: skip
    "zeros, which are as good as any numbers: programs that are defined overwrite them"
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype(), layout=layout, device=device)


@decomposition("aten.empty_strided", unspecified=_ANY_NUMBERS, examples=[example([0, 2], [2, 1])])
def empty_strided(
    size: list[int], stride: list[int], *, dtype: torch.dtype | None = None,
    layout: torch.layout | None = None, device: torch.device | None = None, pin_memory: bool | None = None,
) -> Tensor:  # fmt: skip
    "zeros, as for `empty`; a value has no strides"
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype(), layout=layout, device=device)

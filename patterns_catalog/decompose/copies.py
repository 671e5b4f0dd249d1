"""Copies of views: values cannot be written to, so the copy is the view itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import overload_of
from patcomp.patterns import Rejected, Rule, decomposition, example
from patcomp.pytorch import pytree


def _copy(name: str, *arguments: Any) -> Rule:
    view = overload_of(f"aten.{name.replace('_copy', '')}")

    @decomposition(f"aten.{name}", name=f"decompose {name}", examples=[example(*arguments)])
    def function(*args: Any, **kwargs: Any) -> Any:
        "the view without `_copy`"
        return pytree.tree_map(torch.clone, view(*args, **kwargs))

    return function


view_copy = _copy("view_copy", "2x3xf32", [3, 2])
permute_copy = _copy("permute_copy", "2x3xf32", [1, 0])
narrow_copy = _copy("narrow_copy", "5x3xf32", 0, 1, 2)
unbind_copy = _copy("unbind_copy.int", "2x3xf32", 1)
select_copy = _copy("select_copy.int", "2x3xf32", 1, -1)
slice_copy = _copy("slice_copy.Tensor", "5x3xf32", 0, 1, 4, 2)
split_copy = _copy("split_copy.Tensor", "5x3xf32", 2)
detach_copy = _copy("detach_copy", "2x3xf32")


@decomposition("aten.as_strided_copy", examples=[example("12xf32", [3, 2], [2, 3], 1)])
def as_strided_copy(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    "the view without `_copy`, of the elements in their order"
    if not self.is_contiguous():
        raise Rejected("as_strided_copy needs a contiguous tensor; call .contiguous() first")
    return torch.as_strided(self, size, stride, storage_offset).clone()


@decomposition("prims.convert_element_type", examples=[example("2x3xf32", "f16")])
def convert_element_type(a: Tensor, dtype: torch.dtype) -> Tensor:
    "a cast, as PyTorch's own decompositions end in"
    return torch.ops.aten._to_copy(a, dtype=dtype)


@decomposition("prims.copy_strided", unspecified=dict.fromkeys(
    ("options", "sizes", "ranks"), "strides at which elements share memory are no copy"
), examples=[example("2x3xf32", [1, 2])])  # fmt: skip
def copy_strided(a: Tensor, stride: list[int]) -> Tensor:
    "a copy: PyTorch's own decompositions choose an order in memory by it, and values of the IR have no such order"
    return a.clone(memory_format=torch.contiguous_format)

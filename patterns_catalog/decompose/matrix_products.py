"""Sums of matrix products."""

from __future__ import annotations

import math
import string

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from patterns_catalog.decompose.promotion import in_one_type


@decomposition("aten.addbmm", examples=[
    example("3x5xf32", "2x3x4xf32", "2x4x5xf32", beta=0.5, alpha=2.0),
    example("3x5xsi32", "2x3x4xsi32", "2x4x5xsi32", beta=-1.5, alpha=2.5),
])  # fmt: skip
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    "beta * self + alpha * the sum of the products of all pairs of matrices; factors of integers are cut toward zero"
    if not (self.is_floating_point() or self.is_complex()):
        beta, alpha = int(beta), int(alpha)
    product = alpha * (batch1 @ batch2).sum(0, dtype=self.dtype)
    return product if beta == 0 else beta * self + product  # by the schema, NaN in self times 0 does not count


@decomposition("aten.linear", examples=[
    example("2x3x4xf32", "5x4xf32", "5xf32"), example("2x4xf32", "5x4xf32"), example("4xf32", "5x4xf32", "5xf32"),
    example("2x3x4xf32", "4xf32"), example("4xf32", "4xf32", "f32"),
])  # fmt: skip
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    "input @ weight^T + bias, as one product of matrices; of a vector of weights, its product with each row"
    *leading, width = input.shape
    # a value has no memory, so the copy is for PyTorch's views alone
    rows = torch.ops.aten.clone(input, memory_format=torch.contiguous_format).view(math.prod(leading), width)
    if weight.dim() == 1:
        product = rows.mv(weight).view(leading)
        return product if bias is None else product + bias
    product = rows.mm(weight.t()) if bias is None else torch.addmm(bias, rows, weight.t())
    return product.view(*leading, weight.shape[0])


_UNCHECKED = dict.fromkeys(("options", "ranks", "sizes"), "eager does not check what the layers that use it get right")


@decomposition("aten._trilinear", unspecified=_UNCHECKED, examples=[
    example("2x3xf32", "5x3x4xf32", "2x4xf32", [1, 3], [0], [1, 2], [2, 3]),
    example("2x3xf32", "2x3xf32", "3xf32", [], [], [0], [1]),
])  # fmt: skip
def trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: list[int], expand2: list[int], expand3: list[int],
    sumdim: list[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    "the product of three tensors with dimensions of size 1 inserted, summed over some; the bilinear layer is one"
    if not i1.is_floating_point():
        raise Rejected("a bilinear product of integers is not supported; cast the inputs to float")
    rank = i1.dim() + len(expand1)
    axes = string.ascii_lowercase[:rank]

    def without(*dims: int) -> str:
        return "".join(letter for dim, letter in enumerate(axes) if dim not in {d % rank for d in dims})

    sources = ",".join(without(*dims) for dims in (expand1, expand2, expand3))
    return torch.einsum(f"{sources}->{without(*sumdim)}", *in_one_type(i1, i2, i3)).to(i1.dtype)


@decomposition(
    "aten.conv_tbc",
    unspecified=_UNCHECKED,
    examples=[example("6x2x3xf32", "3x3x4xf32", "4xf32", 1), example("5x2x3xf32", "2x3x4xf32", "4xf32")],
)
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    "a convolution of one dimension whose tensors are [time, batch, channels]"
    made = torch.nn.functional.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return made.permute(2, 0, 1)

"""Reductions of complex numbers that do not reduce each part on its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from patcomp.patterns import Rule, decomposition, example
from patterns_catalog.decompose.complex_parts import function_of_truth

_Z = "3x5xcomplex<f32>"


COUNTED = [
    function_of_truth("any", example(_Z)), function_of_truth("any.dim", example(_Z, 1)),
    function_of_truth("any.dims", example(_Z, [0, 1])),
    function_of_truth("all", example(_Z)), function_of_truth("all.dim", example(_Z, 1)),
    function_of_truth("all.dims", example(_Z, [0, 1])),
    function_of_truth("count_nonzero", example(_Z)), function_of_truth("count_nonzero.dim_IntList", example(_Z, [1])),
    function_of_truth("nonzero", example(_Z)),
]  # fmt: skip


def _product(z: Tensor, dim: int) -> Tensor:
    """The product along an axis, by halves."""
    while (size := z.shape[dim]) > 1:
        half = size // 2
        product = z.narrow(dim, 0, half) * z.narrow(dim, half, half)
        z = product if size % 2 == 0 else torch.cat([product, z.narrow(dim, 2 * half, 1)], dim)
    return z


@decomposition("aten.prod.dim_int", examples=[example(_Z, 1), example(_Z, 0, True)], of_complex=True)
def prod_of_axis(self: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    "products of pairs, until one is left"
    z = self.to(dtype or self.dtype)
    if not z.dim():
        return z
    if z.shape[dim] == 0:
        shape = list(z.shape)
        shape[dim] = 1
        made = torch.full(shape, 1.0, dtype=z.dtype)
    else:
        made = _product(z, dim)
    return made if keepdim else made.squeeze(dim)


@decomposition("aten.prod", examples=[example(_Z)], of_complex=True)
def prod(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    "along the one axis of the flat tensor"
    return torch.prod(self.reshape(-1), 0, dtype=dtype)


@decomposition("aten.cumprod", examples=[example(_Z, 1)], of_complex=True)
def cumprod(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    "each value times the product that ends before it, at doubling distances (Hillis and Steele, 1986)"
    z = self.to(dtype or self.dtype)
    if not z.dim():
        return z
    size, distance = z.shape[dim], 1
    while distance < size:
        grown = z.narrow(dim, distance, size - distance) * z.narrow(dim, 0, size - distance)
        z = torch.cat([z.narrow(dim, 0, distance), grown], dim)
        distance *= 2
    return z


def _spread(name: str) -> Rule:
    overload: Callable[..., Tensor] = torch.ops.aten.var.correction

    @decomposition(
        f"aten.{name}.correction", name=f"decompose complex {name}", of_complex=True,
        examples=[example(_Z, [1], correction=1, keepdim=True)],
    )  # fmt: skip
    def spread(
        self: Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Tensor:
        "the variances of both parts, added"
        total = sum(overload(part, dim, correction=correction, keepdim=keepdim)
                    for part in (torch.real(self), torch.imag(self)))  # fmt: skip
        assert isinstance(total, Tensor)
        return torch.sqrt(total) if name == "std" else total

    return spread


var = _spread("var")
std = _spread("std")


@decomposition("aten.var_mean.correction", of_complex=True, examples=[example(_Z, [1], correction=1, keepdim=True)])
def var_mean(
    self: Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    "the variance and the mean"
    axes = list(range(self.dim())) if dim is None else dim
    spread_ = torch.ops.aten.var.correction(self, dim, correction=correction, keepdim=keepdim)
    return spread_, torch.mean(self, axes, keepdim=keepdim)


@decomposition("aten.linalg_vector_norm", examples=[example(_Z, 2, [1]), example(_Z, 1)], of_complex=True)
def linalg_vector_norm(
    self: Tensor, ord: float = 2, dim: list[int] | None = None, keepdim: bool = False,
    *, dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    "the norm of the absolute values"
    real = dtype.to_real() if dtype is not None else None
    return torch.ops.aten.linalg_vector_norm(self.abs(), ord, dim, keepdim, dtype=real)

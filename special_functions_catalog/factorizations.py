"""LU, Cholesky and QR as ops, up to 32 rows or columns."""

# ruff: noqa: N803 (the schemas' names)

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from patcomp.patterns.aspects import TIES
from special_functions_catalog.matrix_factors import (
    LARGEST,
    NOT_FINITE,
    cholesky_factor,
    householder,
    identity,
    lu_factors,
    no_failure,
    reflected,
    row_numbers,
    swapped,
)

_DEPENDENT = NOT_FINITE | {TIES: "the factors of columns that depend on each other are not unique"}


def _steps(matrix: Tensor) -> int:
    return min(matrix.shape[-2:])


@decomposition(
    "aten.linalg_lu_factor_ex",
    unspecified=NOT_FINITE,
    examples=[example("2x4x4xf32"), example("5x3xf32"), example("3x5xf32")],
)
def linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    "Gaussian elimination with exchanges of rows: both factors in one matrix, the exchanges, the first zero pivot"
    if not pivot:
        raise Rejected("an LU factorization with pivot=False is not supported, as in eager PyTorch on CPUs")
    if not A.numel():
        return A.clone(), torch.ones(*A.shape[:-2], _steps(A), dtype=torch.int32), no_failure(A)
    factors = lu_factors(A)
    return factors.packed, factors.pivots, factors.info


@decomposition("aten.lu_unpack", unspecified={"ranks": "the exchanges have the batch of the factors"}, examples=[
    example("2x4x4xf32", torch.tensor([[3, 2, 4, 4], [2, 2, 3, 4]], dtype=torch.int32)),
    example("5x3xf32", torch.tensor([5, 2, 4], dtype=torch.int32)),
    example("3x5xf32", torch.tensor([1, 3, 3], dtype=torch.int32), unpack_pivots=False),
])  # fmt: skip
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    "the permutation that the exchanges make, and the two triangles, ones on the diagonal of the lower one"
    rows, steps = LU_data.shape[-2], _steps(LU_data)
    nothing = torch.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    permutation, lower, upper = nothing, nothing, nothing
    if unpack_pivots:
        if rows > LARGEST:
            raise Rejected(f"lu_unpack is unrolled, so {rows} rows are too many; at most {LARGEST} are supported")
        permutation = identity(LU_data, rows, rows)
        for step in range(steps if LU_pivots.numel() else 0):
            permutation = swapped(permutation, step, LU_pivots[..., step : step + 1].unsqueeze(-1) - 1)
        permutation = permutation.mT
    if unpack_data:
        lower = LU_data[..., :, :steps].tril(-1) + identity(LU_data, rows, steps)
        upper = LU_data[..., :steps, :].triu()
    return permutation, lower, upper


@decomposition("aten.linalg_lu", examples=[example("2x4x4xf32"), example("5x3xf32"), example("3x5xf32")])
def linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    "Gaussian elimination with exchanges of rows: a permutation, the lower and the upper factor"
    packed, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(A, pivot=pivot)
    return torch.ops.aten.lu_unpack(packed, pivots)  # type: ignore[no-any-return]


def positive_definite(size: int, seed: int, *batch: int) -> Tensor:
    """A symmetric positive definite matrix for examples."""
    root = torch.randn(*batch, size, size, generator=torch.Generator().manual_seed(seed))
    return root @ root.mT + torch.eye(size)


@decomposition("aten.linalg_cholesky_ex", examples=[
    example(positive_definite(4, 0, 2)), example(positive_definite(3, 1), upper=True), example(positive_definite(1, 2)),
])  # fmt: skip
def linalg_cholesky_ex(self: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    "the root of a positive definite matrix, column by column, from one half of the matrix"
    if not self.numel():
        return self.clone(), no_failure(self)
    factor, info = cholesky_factor(self.mT if upper else self)
    return factor.mT if upper else factor, info


@decomposition("aten.cholesky", examples=[example(positive_definite(4, 0, 2)), example(positive_definite(3, 1), True)])
def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    "the first result of linalg_cholesky_ex"
    return torch.ops.aten.linalg_cholesky_ex(self, upper=upper)[0]  # type: ignore[no-any-return]


@decomposition(
    "aten.geqrf", unspecified=_DEPENDENT, examples=[example("2x4x4xf32"), example("5x3xf32"), example("3x5xf32")]
)
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    "Householder's reflections: the upper factor with their vectors below, and their factors"
    if not self.numel():
        return self.clone(), self.new_zeros(*self.shape[:-2], _steps(self))
    return householder(self)


@decomposition(
    "aten.linalg_householder_product", "aten.orgqr", unspecified=NOT_FINITE, examples=[example("2x4x3xf32", "2x3xf32")]
)
def linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    "the first columns of the product of reflections"
    rows, columns = input.shape[-2:]
    return reflected(input, tau, identity(input, rows, columns)) if input.numel() else input.clone()


@decomposition("aten.ormqr", unspecified=NOT_FINITE, examples=[
    example("2x4x3xf32", "2x3xf32", "2x4x5xf32"), example("4x3xf32", "3xf32", "4x2xf32", True, True),
    example("4x3xf32", "3xf32", "2x4xf32", False),
])  # fmt: skip
def ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    "the product of reflections, or its transpose, times a matrix; or a matrix times it"
    if not input3.numel() or not input2.numel():
        return input3.clone()
    if left:
        return reflected(self, input2, input3, transposed=transpose)
    return reflected(self, input2, input3.mT, transposed=not transpose).mT


@decomposition("aten.linalg_qr", unspecified=_DEPENDENT, examples=[
    example("2x4x4xf32"), example("5x3xf32"), example("3x5xf32"), example("5x3xf32", "complete"),
    example("5x3xf32", "r"),
])  # fmt: skip
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    "an orthogonal and an upper factor by Householder's reflections, with LAPACK's signs"
    rows, columns = A.shape[-2:]
    kept = rows if mode == "complete" else _steps(A)
    if not A.numel():
        q = identity(A, rows, kept).clone()
        return A.new_empty(0) if mode == "r" else q, A.new_zeros(*A.shape[:-2], kept, columns)
    packed, factors = householder(A)
    q = A.new_empty(0) if mode == "r" else reflected(packed, factors, identity(A, rows, kept))
    return q, torch.where(row_numbers(packed) > torch.arange(columns), 0.0, packed)[..., :kept, :]

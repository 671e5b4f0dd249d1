"""Determinants, inverses and systems of linear equations, up to 32 unknowns."""

# ruff: noqa: N803 (the schemas' names)

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from special_functions_catalog.factorizations import positive_definite
from special_functions_catalog.matrix_factors import (
    LU,
    NOT_FINITE,
    identity,
    lu_factors,
    no_failure,
    substituted,
    swapped,
)


def _lu_of_determinant(matrix: Tensor) -> LU:
    """PyTorch gives the factors of the transpose where its memory is in LAPACK's order."""
    return lu_factors(matrix.mT if matrix.is_contiguous() else matrix)


@decomposition(
    "aten._linalg_det",
    unspecified=NOT_FINITE,
    examples=[example("4x4xf32"), example("2x1x1xf32"), example("2x3x3xf32[0,0]")],
)
def linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    "the product of the pivots, and the factors"
    if not A.numel():
        return A.new_ones(A.shape[:-2]), A.clone(), A.new_ones(A.shape[:-1], dtype=torch.int32)
    factors = _lu_of_determinant(A)
    result = factors.sign
    for pivot in factors.diagonal:
        result = result * pivot
    return result[..., 0, 0], factors.packed, factors.pivots


@decomposition(
    "aten._linalg_slogdet",
    unspecified=NOT_FINITE,
    examples=[example("4x4xf32"), example("2x3x3xf32"), example("2x2xf32[0,0]")],
)
def linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    "the product of the pivots' signs, the sum of the logarithms of their sizes, and the factors"
    if not A.numel():
        empty = A.new_ones(A.shape[:-2])
        return empty, empty - 1.0, A.clone(), A.new_ones(A.shape[:-1], dtype=torch.int32)
    factors = _lu_of_determinant(A)
    sign, total = factors.sign, torch.zeros_like(factors.sign)
    for pivot in factors.diagonal:
        sign, total = sign * pivot.sign(), total + pivot.abs().log()
    return sign[..., 0, 0], total[..., 0, 0], factors.packed, factors.pivots


@decomposition("aten.linalg_inv_ex", examples=[example("4x4xf32"), example("2x3x3xf32"), example("1x1xf32")])
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    "the solutions for the columns of the identity, and the first zero pivot"
    if not A.numel():
        return A.clone(), no_failure(A)
    result, _, _, info = torch.ops.aten._linalg_solve_ex(A, identity(A, *A.shape[-2:]))
    return result, info


@decomposition("aten._linalg_solve_ex", unspecified=NOT_FINITE, examples=[
    example("4x4xf32", "4x2xf32"), example("3x3xf32", "3xf32"), example("2x3x3xf32", "3x2xf32"),
    example("2x3x3xf32", "2x3xf32"), example("3x3xf32", "2x3xf32", left=False),
])  # fmt: skip
def linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    "elimination in the matrix and the right side at once, then substitution; the factors, the first zero pivot"
    is_vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and A.shape[:-1] == B.shape)
    right = B.unsqueeze(-1) if is_vector else B
    batch = torch.broadcast_shapes(A.shape[:-2], right.shape[:-2])
    right = right.expand(*batch, *right.shape[-2:])
    if not A.numel() or not right.numel():
        packed, pivots, info = torch.ops.aten.linalg_lu_factor_ex(A)
        result = right.clone()
    elif left and A.shape[:-2] == batch:
        factors = lu_factors(A, right)
        assert factors.right is not None
        packed, pivots, info = factors.packed, factors.pivots, factors.info
        result = substituted(packed, factors.right, upper=True)
    else:
        packed, pivots, info = torch.ops.aten.linalg_lu_factor_ex(A)
        result = torch.ops.aten.linalg_lu_solve(packed, pivots, right, left=left)
    return result.squeeze(-1) if is_vector else result, packed, pivots, info


@decomposition("aten.linalg_lu_solve", examples=[
    example("2x3x3xf32", torch.tensor([[3, 2, 3], [2, 2, 3]], dtype=torch.int32), "2x3x2xf32"),
    example("3x3xf32", torch.tensor([3, 2, 3], dtype=torch.int32), "2x3x2xf32", adjoint=True),
    example("3x3xf32", torch.tensor([2, 3, 3], dtype=torch.int32), "2x3xf32", left=False),
])  # fmt: skip
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    "exchanges of rows and two substitutions; of the transposed matrix the same in reverse"
    if not left:
        return torch.ops.aten.linalg_lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT  # type: ignore[no-any-return]
    batch = torch.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    x = B.expand(*batch, *B.shape[-2:])
    if not x.numel():
        return x.clone()
    places = [pivots[..., step : step + 1].unsqueeze(-1) - 1 for step in range(pivots.shape[-1])]
    if adjoint:
        x = substituted(LU.mT, x, upper=False)
        x = substituted(LU.mT, x, upper=True, unit=True)
        for step in reversed(range(len(places))):
            x = swapped(x, step, places[step])
        return x
    for step, place in enumerate(places):
        x = swapped(x, step, place)
    x = substituted(LU, x, upper=False, unit=True)
    return substituted(LU, x, upper=True)


@decomposition("aten.linalg_solve_triangular", examples=[
    example("2x4x4xf32", "4x2xf32", upper=True), example("4x4xf32", "4x2xf32", upper=False, unitriangular=True),
    example("3x3xf32", "2x3xf32", upper=True, left=False),
])  # fmt: skip
def linalg_solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    "the system of a triangular matrix by substitution"
    batch = torch.broadcast_shapes(self.shape[:-2], B.shape[:-2])
    right = B.expand(*batch, *B.shape[-2:])
    if not right.numel():
        return right.clone()
    if left:
        return substituted(self, right, upper=upper, unit=unitriangular)
    return substituted(self.mT, right.mT, upper=not upper, unit=unitriangular).mT


@decomposition("aten.triangular_solve", examples=[
    example("4x2xf32", "2x4x4xf32"), example("4x2xf32", "4x4xf32", False, True, True),
])  # fmt: skip
def triangular_solve(
    self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    "the system of a triangular matrix, or of its transpose, by substitution; and the matrix"
    matrix = A.mT if transpose else A
    solution = torch.linalg.solve_triangular(matrix, self, upper=upper != transpose, unitriangular=unitriangular)
    batch = solution.shape[:-2]
    return solution, A.expand(*batch, *A.shape[-2:]).clone()


@decomposition("aten.cholesky_solve", examples=[
    example("2x4x2xf32", positive_definite(4, 0, 2)), example("4x2xf32", positive_definite(4, 1), True),
])  # fmt: skip
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    "two substitutions, by the root of the matrix and its transpose"
    lower, higher = (input2.mT, input2) if upper else (input2, input2.mT)
    half = torch.linalg.solve_triangular(lower, self, upper=False)
    return torch.linalg.solve_triangular(higher, half, upper=True)


@decomposition(
    "aten.cholesky_inverse", examples=[example(positive_definite(4, 0, 2)), example(positive_definite(3, 1), True)]
)
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    "the inverse of a matrix whose root is given"
    return torch.cholesky_solve(identity(self, *self.shape[-2:]), self, upper)

"""Factors of matrices, unrolled column by column; the matrices are the last two dimensions.

G. H. Golub, C. F. Van Loan, Matrix Computations, 4th edition, algorithms 3.4.1, 4.2.1 and 5.2.1, with the signs and
the layouts of LAPACK.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from patcomp.patterns import Rejected

NOT_FINITE = dict.fromkeys(("infinities and zeros", "NaN"), "LAPACK's pivots and shortcuts decide where they spread")
"""The aspects that rules leave unspecified (`patcomp.patterns.aspects`)."""

LARGEST = 32


def check_size(matrix: Tensor) -> None:
    """Refuse a matrix that would need too many unrolled steps.

    Raises:
        Rejected: the matrix has more than `LARGEST` rows and columns.
    """
    size = min(matrix.shape[-2:])
    if size > LARGEST:
        raise Rejected(f"the algorithm is unrolled, so a matrix of size {size} is too large; the limit is {LARGEST}")


def concatenated(parts: Sequence[Tensor], dim: int) -> Tensor:
    """The parts that have elements, in one tensor."""
    filled = [part for part in parts if part.numel()]
    return torch.cat(filled, dim) if filled else parts[0]


def no_failure(matrix: Tensor) -> Tensor:
    """LAPACK's `info` of matrices without elements."""
    return torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)


def first_failure(failures: Iterable[Tensor]) -> Tensor:
    """LAPACK's `info`: the number of the first step that failed, from 1, or 0; of flags of size 1x1."""
    info = None
    for step, failed in enumerate(failures, 1):
        found = failed[..., 0, 0].to(torch.int32) * step
        info = found if info is None else torch.where(info == 0, found, info)
    assert info is not None
    return info


def row_numbers(matrix: Tensor) -> Tensor:
    """0, 1, ... as a column."""
    return torch.arange(matrix.shape[-2], device=matrix.device).unsqueeze(-1)


def swapped(matrix: Tensor, step: int, place: Tensor) -> Tensor:
    """The matrix with the rows `step` and `place` exchanged; `place` is of size 1x1."""
    rows = row_numbers(matrix)
    found = torch.where(rows == place, matrix, 0).sum(-2, keepdim=True, dtype=matrix.dtype)
    return torch.where(rows == step, found, torch.where(rows == place, matrix[..., step : step + 1, :], matrix))


@dataclass
class LU:
    """Lower and upper factor in one matrix, as LAPACK's getrf gives them, and what belongs to each step."""

    packed: Tensor
    right: Tensor | None
    """The columns to the right of the matrix, multiplied with the inverse of the lower factor after the exchanges."""
    places: list[Tensor]
    """The row that is exchanged with the row of the step."""
    diagonal: list[Tensor]

    @property
    def pivots(self) -> Tensor:
        """The places in a tensor, counted from 1."""
        return torch.cat([place[..., 0] for place in self.places], -1).to(torch.int32) + 1

    @property
    def info(self) -> Tensor:
        """The first step whose pivot is zero, from 1, or 0."""
        return first_failure(pivot == 0.0 for pivot in self.diagonal)

    @property
    def sign(self) -> Tensor:
        """-1 where the number of exchanges is odd, else 1."""
        sign = torch.ones_like(self.diagonal[0])
        for step, place in enumerate(self.places):
            sign = torch.where(place == step, sign, -sign)
        return sign


def lu_factors(matrix: Tensor, right: Tensor | None = None) -> LU:
    """By Gaussian elimination, the largest element of the column as pivot."""
    check_size(matrix)
    width = matrix.shape[-1]
    work = matrix if right is None else torch.cat([matrix, right], -1)
    rows, columns = row_numbers(work), torch.arange(work.shape[-1], device=work.device)
    result = LU(work, None, [], [])
    for step in range(min(matrix.shape[-2:])):
        column = work[..., step : step + 1]
        size = torch.where((rows >= step) & ~column.isnan(), column.abs(), -1.0)
        place = size.argmax(-2, keepdim=True)
        work = swapped(work, step, place)
        pivot = work[..., step : step + 1, step : step + 1]
        factors = work[..., step : step + 1] / torch.where(pivot == 0.0, 1.0, pivot)
        reduced = torch.where(columns > step, work - factors * work[..., step : step + 1, :], work)
        reduced = torch.where(columns == step, factors, reduced)
        work = torch.where(rows > step, reduced, work)
        result.places.append(place)
        result.diagonal.append(pivot)
    result.packed = work[..., :width]
    result.right = None if right is None else work[..., width:]
    return result


def cholesky_factor(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factor of a symmetric matrix, of which only the lower half is read, and LAPACK's info."""
    check_size(matrix)
    rest, columns, failures = matrix, [], []
    for step in range(matrix.shape[-1]):
        pivot = rest[..., :1, :1]
        failures.append(~(pivot > 0.0))
        column = rest[..., :, :1] / pivot.sqrt()
        columns.append(concatenated([torch.zeros_like(matrix[..., :step, :1]), column], -2))
        below = column[..., 1:, :]
        rest = rest[..., 1:, 1:] - below * below.mT if below.numel() else below
    return torch.cat(columns, -1), first_failure(failures)


def householder(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The upper factor with the reflections' vectors below it, and their factors, as LAPACK's geqrf gives them."""
    check_size(matrix)
    # the vectors are those of any multiple; elements of a size near 1 have squares
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    scale = torch.where(largest > 0.0, largest, 1.0)
    rest = matrix / scale
    steps = []
    for _ in range(min(matrix.shape[-2:])):
        first, below = rest[..., :1, :], rest[..., 1:, :1]
        if not below.shape[-2]:
            steps.append((first * scale, below, torch.zeros_like(first[..., :1])))
            break
        alpha, squares = first[..., :1], (below * below).sum(-2, keepdim=True)
        length = (alpha * alpha + squares).sqrt()
        reflected = squares != 0.0
        beta = torch.where(reflected, torch.where(alpha < 0.0, length, -length), alpha)
        factor = torch.where(reflected, (beta - alpha) / torch.where(reflected, beta, 1.0), 0.0)
        vector = torch.where(reflected, below / torch.where(reflected, alpha - beta, 1.0), 0.0)
        right, right_below = first[..., 1:], rest[..., 1:, 1:]
        if right.shape[-1]:
            product = factor * (right + (vector * right_below).sum(-2, keepdim=True))
            right, right_below = right - product, right_below - vector * product
        steps.append((concatenated([beta, right], -1) * scale, vector, factor))
        rest = right_below
    packed = rest * scale if rest.numel() and len(steps) < matrix.shape[-2] else rest[..., :0, :]
    for row, vector, _ in reversed(steps):
        packed = concatenated([row, concatenated([vector, packed], -1)], -2)
    return packed, torch.cat([factor[..., 0] for *_, factor in steps], -1)


def reflected(packed: Tensor, factors: Tensor, other: Tensor, *, transposed: bool = False) -> Tensor:
    """The product of the reflections that `householder` gives, or its transpose, times another matrix."""
    check_size(packed)
    rows = row_numbers(packed)
    steps = range(factors.shape[-1])
    for step in steps if transposed else reversed(steps):
        column = packed[..., step : step + 1]
        vector = torch.where(rows == step, 1.0, torch.where(rows > step, column, 0.0))
        product = (vector * other).sum(-2, keepdim=True) * factors[..., step : step + 1].unsqueeze(-1)
        other = other - vector * product
    return other


def identity(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Ones on the diagonal, with the type and the batch dimensions of a matrix."""
    eye = torch.eye(rows, columns, dtype=matrix.dtype, device=matrix.device)
    return eye.expand(*matrix.shape[:-2], rows, columns)


def substituted(matrix: Tensor, right: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """The solution of a triangular system by substitution; the other half of the matrix is not read."""
    check_size(matrix)
    size = matrix.shape[-1]
    rows: dict[int, Tensor] = {}
    first = 0
    for step in reversed(range(size)) if upper else range(size):
        row = right[..., step - first : step - first + 1, :]
        rows[step] = row if unit else row / matrix[..., step : step + 1, step : step + 1]
        left = slice(0, step) if upper else slice(step + 1, size)
        if left.start < left.stop:
            kept = right[..., left.start - first : left.stop - first, :]
            right = kept - matrix[..., left, step : step + 1] * rows[step]
            first = left.start
    return torch.cat([rows[step] for step in range(size)], -2)

"""Eigenvalues of symmetric matrices, singular values, and what follows from them, by Jacobi's rotations.

Each sweep rotates every pair of columns once, disjoint pairs at the same time: R. P. Brent, F. T. Luk, The solution of
singular-value and symmetric eigenvalue problems on multiprocessor arrays, SIAM J. Sci. Stat. Comput. 6, 1985.
"""

# ruff: noqa: N803 (the schemas' names)

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from special_functions_catalog.matrix_factors import NOT_FINITE, identity

_VECTORS = {"options": "singular vectors and eigenvectors, which have no determined sign, are refused"}

LARGEST = 16
_SWEEPS = 8
"""Convergence is quadratic; float32 needs about six for 16 columns."""


def _check(size: int) -> None:
    if size > LARGEST:
        raise Rejected(f"singular values of more than {LARGEST} columns are not supported; there are {size}")


def _orthogonal_columns(matrix: Tensor, rows: int) -> Tensor:
    """The matrix times an orthogonal one, such that the columns of its first rows are orthogonal.

    M. R. Hestenes, Inversion of matrices by biorthogonalization and related results, J. SIAM 6, 1958.
    """
    count = matrix.shape[-1]
    _check(count)
    if count == 1:
        return matrix
    even = count + count % 2
    if even != count:
        matrix = torch.cat([matrix, torch.zeros_like(matrix[..., :1])], -1)
    half = even // 2
    # the pairs are (left[i], right[i]); all but the first column move around in a circle
    left, right = matrix[..., :half], matrix[..., half:]
    for _ in range(_SWEEPS * (even - 1)):
        x, y = left[..., :rows, :], right[..., :rows, :]
        alpha, beta, gamma = ((a * b).sum(-2, keepdim=True) for a, b in ((x, x), (y, y), (x, y)))
        rotated = gamma != 0.0
        zeta = (beta - alpha) / torch.where(rotated, 2.0 * gamma, 1.0)
        tangent = torch.where(zeta < 0.0, -1.0, 1.0) / (zeta.abs() + (1.0 + zeta * zeta).sqrt())
        tangent = torch.where(rotated, tangent, 0.0)
        cosine = (1.0 + tangent * tangent).rsqrt()
        sine = cosine * tangent
        left, right = cosine * left - sine * right, sine * left + cosine * right
        if half > 1:
            left, right = (
                torch.cat([left[..., :1], right[..., :1], left[..., 1:-1]], -1),
                torch.cat([right[..., 1:], left[..., -1:]], -1),
            )
    return torch.cat([left, right], -1)


def _scaled(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix with elements up to 1, whose squares neither overflow nor vanish, and its largest element."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    scale = torch.where(largest > 0.0, largest, 1.0)
    return matrix / scale, scale


def singular_values(matrix: Tensor) -> Tensor:
    """In descending order."""
    rows, columns = matrix.shape[-2:]
    count = min(rows, columns)
    tall, scale = _scaled(matrix if rows >= columns else matrix.mT)
    lengths = (_orthogonal_columns(tall, tall.shape[-2]) ** 2).sum(-2).sqrt()
    return lengths.sort(-1, descending=True).values[..., :count] * scale[..., 0]


_LIBRARY = torch.library.Library("patcomp", "FRAGMENT")
_LIBRARY.define(
    "vectors_of_undetermined_sign(Tensor matrix, SymInt columns) -> Tensor", tags=torch.Tag.pt2_compliant_tag
)


def _shape_of_vectors(matrix: Tensor, columns: int) -> Tensor:
    return matrix.new_empty(*matrix.shape[:-1], columns)


_LIBRARY.impl("vectors_of_undetermined_sign", _shape_of_vectors, "Meta")


def _vectors(matrix: Tensor, columns: int) -> Tensor:
    """Stands for singular vectors and eigenvectors: no rule takes it, so a program that uses them is refused.

    PyTorch asks for vectors even where a program only uses values.
    """
    return torch.ops.patcomp.vectors_of_undetermined_sign(matrix, columns)  # type: ignore[no-any-return]


@decomposition("aten._linalg_svd", unspecified=_VECTORS, examples=[
    example("2x4x4xf32", False, False), example("5x3xf32", compute_uv=False), example("1x6xf32", compute_uv=False),
])  # fmt: skip
def linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    "the lengths of the columns once rotations have made them orthogonal; singular vectors are refused if they are used"
    rows, columns = A.shape[-2:]
    count = min(rows, columns)
    values = singular_values(A) if A.numel() else A.new_empty(*A.shape[:-2], count)
    if not compute_uv:
        return A.new_empty(0), values, A.new_empty(0)
    u = _vectors(A, rows if full_matrices else count)
    return u, values, _vectors(A.mT, columns if full_matrices else count).mT


def _symmetric(matrix: Tensor, half: str) -> Tensor:
    if half.upper() == "L":
        return matrix.tril() + matrix.tril(-1).mT
    return matrix.triu() + matrix.triu(1).mT


def eigenvalues(matrix: Tensor) -> Tensor:
    """Of a symmetric matrix, in ascending order: singular values of the matrix moved until none is negative."""
    scaled, scale = _scaled(matrix)
    size = matrix.shape[-1]
    bound = scaled.abs().sum(-1).amax(-1)[..., None, None]
    moved = singular_values(scaled + bound * identity(matrix, size, size))
    return (moved.flip(-1) - bound[..., 0]) * scale[..., 0]


@decomposition(
    "aten._linalg_eigh",
    unspecified=_VECTORS,
    examples=[example("2x4x4xf32", compute_v=False), example("3x3xf32", "U", False)],
)
def linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    "by rotations of the matrix, one half of which is read; eigenvectors are refused if they are used"
    values = eigenvalues(_symmetric(A, UPLO)) if A.numel() else A.new_empty(A.shape[:-1])
    return values, _vectors(A, A.shape[-1]) if compute_v else A.new_empty(0)


@decomposition("aten.linalg_pinv.atol_rtol_tensor", unspecified=NOT_FINITE, examples=[
    example("2x5x3xf32"), example("3x4xf32", rtol=torch.tensor(0.5)), example("3x3xf32", hermitian=True),
    example("4x4xf32[0,0]"),
])  # fmt: skip
def linalg_pinv(
    self: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    "the sum of v w^T / |w|^2 of the matrix's orthogonal columns w = self v, the shortest ones left out"
    if not self.numel():
        return self.new_empty(self.mT.shape)
    rows, columns = self.shape[-2:]
    if rows < columns:
        return torch.linalg.pinv(self.mT, atol=atol, rtol=rtol).mT
    matrix, scale = _scaled(_symmetric(self, "L") if hermitian else self)
    both = _orthogonal_columns(torch.cat([matrix, identity(matrix, columns, columns)], -2), rows)
    w, v = both[..., :rows, :], both[..., rows:, :]
    squares = (w * w).sum(-2, keepdim=True)
    lengths = squares.sqrt()
    relative = torch.full_like(scale, max(rows, columns) * torch.finfo(self.dtype).eps)
    smallest = torch.zeros_like(scale)
    if atol is not None:
        smallest = atol[..., None, None] / scale
        relative = torch.where(smallest > 0.0, 0.0, relative)
    if rtol is not None:
        relative = rtol[..., None, None]
    kept = lengths > torch.maximum(smallest, relative * lengths.amax(-1, keepdim=True))
    return (torch.where(kept, v / squares, 0.0) @ w.mT) / scale

"""Functions of square matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from special_functions_catalog.matrix_factors import identity

_DEGREE = 18
_SQUARINGS = 24
"""Enough for norms up to 2^25; the exponential of larger ones is NaN here."""

_INFINITE = {"infinities and zeros": "the steps of the algorithm decide where they spread"}


@decomposition("aten.linalg_matrix_exp", "aten.matrix_exp", unspecified=_INFINITE, examples=[
    example("2x4x4xf32"), example("3x3xf32[-6,3]"), example("1x1xf32"),
])  # fmt: skip
def linalg_matrix_exp(self: Tensor) -> Tensor:
    """Taylor's series of the matrix divided by 2^k, and the result squared k times.

    C. Moler, C. Van Loan, Nineteen dubious ways to compute the exponential of a matrix, SIAM Review 45, 2003,
    method 3. The power is such that the 1-norm is at most 2.
    """
    if self.dtype in (torch.float16, torch.bfloat16):
        raise Rejected("matrix_exp in half precision is not supported, because PyTorch's own overflows; use float32")
    matrix = self
    if not matrix.numel():
        return self.clone()
    norm = matrix.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    halved = [norm > 2.0 ** (power + 1) for power in range(_SQUARINGS)]
    for active in halved:
        matrix = torch.where(active, 0.5 * matrix, matrix)
    eye = identity(matrix, *matrix.shape[-2:])
    total = eye
    for power in range(_DEGREE, 0, -1):
        total = eye + (matrix @ total) / float(power)
    for active in halved:
        total = torch.where(active, total @ total, total)
    return torch.where(norm > 2.0 ** (_SQUARINGS + 1), math.nan, total)

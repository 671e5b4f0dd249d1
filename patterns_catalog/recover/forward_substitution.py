"""Forward substitution: rows of a triangular matrix, each solved with those above it, as products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from patcomp.authoring import AtenSource, Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, Attr, Capture, OpView, any_of, composites, example, op_rule, pattern
from patterns_catalog.recover.chunk_patterns import triangle

NOT_FINITE = dict.fromkeys(
    ("infinities and zeros", "NaN"), "in products of matrices, what is not finite reaches rows above it, too"
)


@composites.define
@composite("forward_substitution", inputs=("matrix",))
def forward_substitution(c: Coreai, matrix: Value) -> Value:
    """row i = row i + row i @ the rows above it, for each row in order, of the part below the diagonal.

    For L, the part of a matrix `[..., n, n]` below its diagonal, this is (I - L)^-1 - I; computed in float32.
    """
    wide = c.cast(matrix, "f32")
    size = matrix.static_shape[-1]
    inverse = unit_lower_inverse(c, c.broadcasting_sub(0.0, wide), size, c.constant)
    return c.cast(c.broadcasting_sub(inverse, c.constant(np.eye(size, dtype=np.float32))), matrix.element_type)


def unit_lower_inverse(c: Coreai, matrix: Value, size: int, mask: Callable[[np.ndarray], Value]) -> Value:
    """The inverse of I + the part of a matrix below its diagonal.

    The inverse of blocks of twice the size follows from that of the blocks: [[A, 0], [C, B]] has the inverse [[A', 0],
    [-B' C A', B']]. Powers of the matrix would be simpler, and their sum is rounded badly where rows are alike.

    Args:
        matrix: `[..., n, n]` of float32.
        size: at least n.
        mask: makes a value of the first n rows and columns of a constant `[size, size]`.
    """
    inverse = mask(np.eye(size, dtype=np.float32))
    half = 1
    while half < min(size, matrix.shape[-1] or size):
        part = c.broadcasting_mul(matrix, mask(lower_halves(half, size).astype(np.float32)))
        if half > 1:
            part = c.broadcasting_batch_matmul(inverse, c.broadcasting_batch_matmul(part, inverse))
        inverse = c.broadcasting_sub(inverse, part)
        half *= 2
    return inverse


def lower_halves(half: int, size: int) -> np.ndarray:
    """Pairs of positions, of which the first is in the second half of a block and the other in its first half.

    Args:
        half: the size of half a block.
        size: how many positions there are.
    """
    position = np.arange(size)
    blocks = position // (2 * half)
    is_in: np.ndarray = (blocks[:, None] == blocks) & (position[:, None] // half > position // half)
    return is_in


# ---- the unrolled loop -----------------------------------------------------------------------------


@pattern
def _solved_row(
    a: AtenSource, before: Capture, index: Attr, rows: Attr, columns: Attr, along: Attr, added: Attr
) -> Any:
    "a matrix with row i = row i + row i @ the rows above it, up to column i"

    def row() -> Any:
        return a.op("select.int", before, dim=rows, index=index)

    def up_to_index(x: Any, dim: Any) -> Any:
        return a.op("slice.Tensor", x, dim=dim, start=0, end=index, step=1)

    part = up_to_index(row(), along)
    above = up_to_index(up_to_index(before, rows), columns)
    products = a.unsqueeze(part, dim=-1) * above
    solved = part + a.op("sum.dim_IntList", products, dim=[added], keepdim=False, dtype=None)
    written = a.slice_scatter(row(), solved, dim=along, start=0, end=index, step=1)
    whole = any_of(
        a.select_scatter(before, written, dim=rows, index=index),
        a.slice_scatter(before, a.unsqueeze(written, dim=rows), dim=rows, start=index, end=ANY, step=1),
    )
    return whole, [
        before.rank >= 2, before.dtype.is_in("f32", "f16", "bf16"), whole.type == before.type,
        before.shape[-1] == before.shape[-2],
        rows == before.rank - 2, columns == before.rank - 1, along == before.rank - 2, added == before.rank - 2,
    ]  # fmt: skip


@pattern
def _below_diagonal(a: AtenSource, x: Capture, lower: Capture, upper: Capture) -> Any:
    "what is below the diagonal of a matrix, and zeros"
    part = any_of(a.where(lower, x, 0.0), a.where(upper, 0.0, x))
    return any_of(a.neg(part), part), [x.rank >= 2, triangle("lower", False, -1), triangle("upper", True, 0)]


def _solved_in_place(torch: Any, x: Any) -> Any:
    whole = x.tril(-1)
    for i in range(1, 4):
        row = whole[..., i, :i].clone()
        whole[..., i, :i] = row + (row.unsqueeze(-1) * whole[..., :i, :i].clone()).sum(-2)
    return whole


@op_rule("recover", "aten.slice_scatter", "aten.select_scatter", name="forward_substitution", size=11,
         pattern=_solved_row, unspecified=NOT_FINITE, examples=[
    example("2x4x4xf32[-1,1]", program=_solved_in_place),
])  # fmt: skip
def recovered_forward_substitution(op: OpView, c: Coreai) -> Value | None:
    """row i = row i + row i @ the rows above it, for i = 1 to n - 1, unrolled (the chunks of linear attention)

    The matrix must be 0 on its diagonal and above, which the rows above have, too.
    """
    op.ignore(*op.arguments, because="the pattern of a row reads them")
    value = Value(op.operation.results[0])
    covered: list[Operation] = []
    for index in reversed(range(1, value.static_shape[-1])):
        row = _solved_row.match(value)
        if row is None or row["index"] != index:
            return None
        covered += row.ops
        value = row["before"]
        if index > 1 and any(user not in row.ops for user in value.users):
            return None
    if _below_diagonal.match(value) is None:
        return None
    op.cover(*covered)
    return forward_substitution(value)  # type: ignore[no-any-return]

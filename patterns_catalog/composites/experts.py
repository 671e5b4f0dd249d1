"""Products with matrices that are chosen by index, as a composite."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import composites
from patterns_catalog.sizes import as_index


@composites.define
@composite("gather_mm", inputs=("lhs", "rhs", "lhs_indices", "rhs_indices"), attributes=("num_batch_axes",))
def gather_mm(
    c: Coreai, lhs: Value, rhs: Value, lhs_indices: Value | None = None, rhs_indices: Value | None = None, *,
    num_batch_axes: int,
) -> Value:  # fmt: skip
    """lhs[lhs_indices] @ rhs[rhs_indices]; the indices choose along the axis after the batch axes."""
    operands = [
        x if indices is None else _gathered(c, x, indices, num_batch_axes)
        for x, indices in ((lhs, lhs_indices), (rhs, rhs_indices))
    ]
    return c.broadcasting_batch_matmul(*operands)


def _gathered(c: Coreai, x: Value, indices: Value, axis: int) -> Value:
    """`x` with the dimensions of `indices` in place of `axis`."""
    order = [axis, *(other for other in range(x.rank) if other != axis)]
    moved = c.transpose(x, order) if axis else x
    taken = c.gather_nd(moved, c.expand_dims(as_index(c, indices), [indices.rank]))
    count = indices.rank
    back = [*range(count, count + axis), *range(count), *range(count + axis, taken.rank)]
    return c.transpose(taken, back) if axis else taken

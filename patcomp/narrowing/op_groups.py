"""Groups of `aten` ops that several analyses of narrowing treat alike."""

from __future__ import annotations

from patcomp.ir.aten import ops_with, schema_of
from patcomp.ir.traits import Selection, Whole


def aten(names: str) -> frozenset[str]:
    """The full names of ops of the `aten` dialect; names are separated by blanks."""
    return frozenset(f"aten.{name}" for name in names.split())


VIEWS = ops_with(Whole)
"""Ops of one operand whose result has every element of the operand."""

SELECTIONS = frozenset(
    name for name in ops_with(Selection) if (schema := schema_of(name)) and schema.result_types == ("Tensor",)
)
"""Ops whose result has only elements of `self`, some of them perhaps left out or repeated."""

MOVES = SELECTIONS | aten(
    "_index_put_impl _unsafe_index_put cat constant_pad_nd copy embedding full full_like index_put masked_scatter"
    " scalar_tensor scatter.src scatter.value select_scatter slice_scatter split.Tensor split_with_sizes stack"
    " unbind.int where.Scalar where.ScalarOther where.ScalarSelf where.self"
)  # fmt: skip
"""Ops whose results contain unchanged numbers of their operands, or sums of them if they accumulate."""

"""Groups of `aten` ops that several analyses of narrowing treat alike."""

from __future__ import annotations


def aten(names: str) -> frozenset[str]:
    """The full names of ops of the `aten` dialect; names are separated by blanks."""
    return frozenset(f"aten.{name}" for name in names.split())


VIEWS = aten(
    "_unsafe_view alias clone contiguous detach expand flip lift_fresh_copy permute reshape squeeze squeeze.dim"
    " squeeze.dims t transpose.int unsqueeze view"
)
"""Ops of one operand whose result has every element of the operand."""

SELECTIONS = aten(
    "as_strided diagonal gather index.Tensor index_select masked_select pixel_shuffle reflection_pad1d"
    " reflection_pad2d reflection_pad3d repeat repeat_interleave.self_int replication_pad1d replication_pad2d"
    " replication_pad3d select.int slice.Tensor unfold"
)
"""Ops whose result has only elements of `self`, some of them perhaps left out or repeated."""

MOVES = VIEWS | SELECTIONS | aten(
    "_index_put_impl _unsafe_index_put cat constant_pad_nd copy embedding full full_like index_put masked_scatter"
    " scalar_tensor scatter.src scatter.value select_scatter slice_scatter split.Tensor split_with_sizes stack"
    " unbind.int where.Scalar where.ScalarOther where.ScalarSelf where.self"
)  # fmt: skip
"""Ops whose results contain unchanged numbers of their operands, or sums of them if they accumulate."""

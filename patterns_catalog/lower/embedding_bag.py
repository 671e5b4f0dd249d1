"""Bags of embeddings."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.combining import combine, filled
from patterns_catalog.sizes import as_index
from patterns_catalog.slices import slice_axis

_MODES = ("sum", "mean", "amax")


_OPEN = {
    "options": "eager's kernels differ in whether a last offset before the end leaves the rest out",
    "NaN": "eager's maximum of a bag depends on where in the bag NaN is",
}


@lowering("aten._embedding_bag", "aten._embedding_bag_forward_only", unspecified=_OPEN, examples=[
    example("7x3xf32", "6xsi64[0,6]", "3xsi64[0,0]"),
    example("7x3xf32", "6xsi64[0,3]", "3xsi64[0,0]", False, 1, False, None, True, 2),
    example("7x3xf32", "6xsi64[0,3]", "3xsi64[0,0]", False, 2, False, None, False, 1),
    example("7x3xf32", "6xsi64[0,6]", "3xsi64[0,0]", False, 0, False, "6xf32"),
])  # fmt: skip
def embedding_bag(op: OpView, c: Coreai) -> list[Value]:
    """Sum, mean or maximum of the rows of each bag; a bag starts at its offset, and an empty one gives zeros.

    Rows of `padding_idx` do not count. The other results only concern gradients.
    """
    op.ignore("scale_grad_by_freq", "sparse", because="they only concern gradients")
    op.expect(not any(op.used(result) for result in (1, 2, 3)), "embedding_bag supports only its first result")
    ranks = [value.rank for value in (op.weight, op.indices, op.offsets)]
    op.expect(ranks == [2, 1, 1], "embedding_bag needs a matrix of weights, and vectors of indices and offsets")
    weight, indices, offsets = op.weight, as_index(c, op.indices), as_index(c, op.offsets)
    for name, value in (("weight", weight), ("indices", indices), ("offsets", offsets)):
        open_axes = [axis for axis, size in enumerate(value.shape) if size is None]
        op.expect(not open_axes, f"embedding_bag needs static shapes; dimension {open_axes} of `{name}` is dynamic")
    bags, width = op.result.static_shape
    rest = [filled(c, 0, list(result.static_shape), result.element_type) for result in op.results[1:]]
    none = filled(c, 0, [bags, width], weight.element_type)
    (count,) = indices.static_shape
    if count == 0:
        op.ignore("mode", "per_sample_weights", "include_last_offset", "padding_idx", because="all bags are empty")
        return [none, *rest]
    starts = slice_axis(c, offsets, 0, 0, bags) if op.include_last_offset else offsets
    positions = c.constant(np.arange(count, dtype=np.int32)[:, None])
    # the bag of a position is the last one that starts at or before it
    later = c.cast(c.broadcasting_greater(c.reshape(starts, [1, bags]), positions), "si32")
    bag = c.broadcasting_sub(bags - 1, c.reduce_sum(later, [1]))
    rows = c.gather_nd(weight, c.expand_dims(indices, [1]))
    if op.per_sample_weights is not None:
        rows = c.broadcasting_mul(rows, c.expand_dims(op.per_sample_weights, [1]))
    if op.padding_idx >= 0:  # what does not count goes to a bag of its own
        padding = c.broadcasting_equal(c.expand_dims(indices, [1]), op.padding_idx)
        bag = c.broadcasting_where(padding, c.constant(bags, "si32"), bag)
    none = filled(c, 0, [bags + 1, width], weight.element_type)
    place = c.broadcast_to(bag, [count, width])
    pooled = combine(c, none, 0, place, rows, _MODES[op.mode], include_self=False)
    return [slice_axis(c, pooled, 0, 0, bags), *rest]

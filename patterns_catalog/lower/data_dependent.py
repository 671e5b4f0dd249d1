"""Ops whose number of results depends on the data: the first dimension of the result is dynamic."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.types import is_integer
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.combining import combine, filled
from patterns_catalog.lower.shapes import expanded
from patterns_catalog.sizes import END, broadcast_sizes, plus, positions, sizes_of, typed, wanted_sizes


@lowering("aten.nonzero", examples=[example("3x4xsi32[0,2]"), example("5xi1"), example("2x3xf32")])
def nonzero(op: OpView, c: Coreai) -> Value:
    "the places that are not zero, a row of indices for each"
    x = op["self"]
    if x.rank == 0:  # one row without indices, or none: nothing of it could be stored
        op.reject("nonzero of a 0-d tensor is not supported; reshape the tensor to one dimension")
    return c.cast(c.non_zero(_truth(c, x)), op.result.element_type)


@lowering("aten.masked_select", examples=[example("3x4xf32", "3x4xi1"), example("2x1xsi32", "3xi1")])
def masked_select(op: OpView, c: Coreai) -> Value:
    "the elements of `self` where `mask` holds, both broadcast, as one dimension"
    x, mask = op["self"], op.mask
    x, mask = (part if part.rank else c.reshape(part, [1]) for part in (x, mask))
    shape, sizes = broadcast_shapes(x.shape, mask.shape), broadcast_sizes(c, [x, mask])
    x, mask = (part if part.shape == shape else expanded(c, part, shape, sizes) for part in (x, mask))
    return c.gather_nd(x, c.non_zero(mask))


@lowering(
    "aten.index.Tensor",
    name="index by mask",
    examples=[example("3x4x2xf32", ["3x4xi1"]), example("2x3x4x2xsi32", [None, "3x4xi1"])],
)
def index_by_mask(op: OpView, c: Coreai) -> Value:
    "the slices of `self` where a mask over some of its dimensions holds"
    x, indices = op["self"], op.indices
    masks = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(masks) != 1 or masks[0][1].dtype != "i1":
        op.reject("indexing with a boolean mask and other indices together is not supported; index in two steps")
    ((axis, mask),) = masks
    op.expect(mask.rank > 0, "indexing with a 0-d mask is not supported; give the mask a dimension")
    masked = [*range(axis, axis + mask.rank)]
    order = [*masked, *(other for other in range(x.rank) if other not in masked)]
    taken = c.gather_nd(c.transpose(x, order), c.non_zero(mask))
    return c.transpose(taken, [*range(1, axis + 1), 0, *range(axis + 1, taken.rank)])


@lowering("aten.repeat_interleave.Tensor", name="repeat_interleave by numbers", examples=[
    example("4xsi32[2,2]", output_size=8), example("5xsi32[0,3]"),
])  # fmt: skip
def repeat_interleave(op: OpView, c: Coreai) -> Value:
    """The index of each element, as often as it is repeated. Negative repeats, an error in eager PyTorch, count as 0.

    If no size is given, the indices are the rows of the true elements of a table. Each row has as many true elements as
    its index is repeated.
    """
    repeats, element = op.repeats, op.result.element_type
    op.expect(repeats.rank == 1, "the repeats of repeat_interleave must have one dimension")
    numbers = constant_values(repeats.ssa, Builder.current().blobs)
    if numbers is not None and op.output_size is None:
        op.expect(bool((numbers >= 0).all()), "the repeats of repeat_interleave must not be negative")
        return typed(c, c.constant(np.repeat(np.arange(len(numbers)), numbers), element), op.result.shape)
    repeats = c.cast(repeats, "si32")
    if op.output_size is None:
        most = c.reshape(c.reduce_max(repeats, [0]), [])
        table = c.broadcasting_greater(c.expand_dims(repeats, [1]), c.expand_dims(c.range(0, most, 1), [0]))
        index = c.shrink_dims(c.slice_(c.non_zero(table), [0, 0], [END, 1], [1, 1]), [1])
        return c.cast(index, element)
    (size,) = wanted_sizes(op.result.shape, [op.output_size])
    place = c.expand_dims(positions(c, size), [1])
    before = c.not_(c.broadcasting_greater(c.expand_dims(c.scan(repeats, 0, False, scan_op="sum"), [0]), place))
    return c.cast(c.shrink_dims(c.reduce_sum(c.cast(before, "si32"), [1]), [1]), element)


@lowering("aten.bincount", examples=[
    example("9xsi32[0,5]"), example("9xsi64[0,5]", "9xf32", 8), example("9xui8[0,5]", minlength=2),
])  # fmt: skip
def bincount(op: OpView, c: Coreai) -> Value:
    """How often each number occurs, or the sum of its weights. Negative numbers are an error in eager PyTorch."""
    x, element = op["self"], op.result.element_type
    op.expect(x.rank == 1 and is_integer(x.element_type), "bincount needs integers in one dimension")
    x = c.cast(x, "si32")
    least = op.minlength
    last = plus(c, least, -1) if isinstance(least, Value) else c.constant(least - 1, "si32")
    largest = c.reduce_max(c.concat(0, [x, c.reshape(c.cast(last, "si32"), [1])]), [0])
    zeros = filled(c, 0, [plus(c, c.reshape(largest, []), 1)], element)
    source = filled(c, 1, sizes_of(c, x), element) if op.weights is None else c.cast(op.weights, element)
    return combine(c, zeros, 0, x, source, "sum")


def _truth(c: Coreai, x: Value) -> Value:
    """A float or integer as whether it is not zero; the runtime takes -0.0 for a number."""
    return x if x.dtype == "i1" else c.broadcasting_not_equal(x, 0)

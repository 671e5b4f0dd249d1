"""Ops whose number of results depends on the data: the first dimension of the result is dynamic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Capture, example, formula
from patcomp.patterns.conditions import condition, is_given, is_integral
from patcomp.patterns.expressions import Expression
from patterns_catalog.lower.casts import truth
from patterns_catalog.lower.combining import combine, filled
from patterns_catalog.lower.shapes import as_vector, broadcast_together
from patterns_catalog.numbers import is_known, known_numbers
from patterns_catalog.sizes import END, Size, plus, positions, sizes_of, typed, wanted_sizes


# of a 0-d tensor, there is one row without indices, or none: nothing of it could be stored
@formula("lower", "aten.nonzero", where=lambda self: [
    (self.rank > 0).says("nonzero of a 0-d tensor is not supported; reshape the tensor to one dimension"),
], examples=[example("3x4xsi32[0,2]"), example("5xi1"), example("2x3xf32")])  # fmt: skip
def nonzero(c: Coreai, self: Value, result: ValueType) -> Value:
    "the places that are not zero, a row of indices for each"
    return c.cast(c.non_zero(truth(c, self)), result.element_type)


@formula("lower", "aten.masked_select", examples=[example("3x4xf32", "3x4xi1"), example("2x1xsi32", "3xi1")])
def masked_select(c: Coreai, self: Value, mask: Value) -> Value:
    "the elements of `self` where `mask` holds, both broadcast, as one dimension"
    x, mask = broadcast_together(c, [as_vector(c, self), as_vector(c, mask)])
    return c.gather_nd(x, c.non_zero(mask))


@condition("{indices} are one mask")
def _are_one_mask(indices: Sequence[Value | None]) -> bool:
    return [index.dtype for index in indices if index is not None] == ["i1"]


@condition("the first of {indices} has dimensions")
def _has_dimensions(indices: Sequence[Value | None]) -> bool:
    return next(index for index in indices if index is not None).rank > 0


@formula("lower", "aten.index.Tensor", name="index by mask", where=lambda indices: [
    _are_one_mask(indices).says(
        "indexing with a boolean mask and other indices together is not supported; index in two steps"),
    _has_dimensions(indices).says("indexing with a 0-d mask is not supported; give the mask a dimension"),
], examples=[example("3x4x2xf32", ["3x4xi1"]), example("2x3x4x2xsi32", [None, "3x4xi1"])])  # fmt: skip
def index_by_mask(c: Coreai, self: Value, indices: Sequence[Value | None]) -> Value:
    "the slices of `self` where a mask over some of its dimensions holds"
    ((axis, mask),) = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    masked = [*range(axis, axis + mask.rank)]
    order = [*masked, *(other for other in range(self.rank) if other not in masked)]
    taken = c.gather_nd(c.transpose(self, order), c.non_zero(mask))
    return c.transpose(taken, [*range(1, axis + 1), 0, *range(axis + 1, taken.rank)])


def _is_vector(repeats: Capture) -> Expression:
    return (repeats.rank == 1).says("the repeats of repeat_interleave must have one dimension")


@condition("no number of {x} is negative")
def _is_never_negative(x: Value) -> bool:
    numbers = known_numbers(x)
    return numbers is not None and bool(np.all(numbers >= 0))


@formula("lower", "aten.repeat_interleave.Tensor", name="repeat_interleave by known numbers",
         where=lambda repeats, output_size: [
    is_known(repeats), output_size.is_in(None), _is_vector(repeats),
    _is_never_negative(repeats).says("the repeats of repeat_interleave must not be negative"),
], examples=[
    example("3x2xf32", program=lambda torch, x: torch.repeat_interleave(x, torch.tensor([1, 0, 2]), dim=0)),
])  # fmt: skip
def repeat_interleave_by_known_numbers(c: Coreai, repeats: Value, result: ValueType) -> Value:
    "the index of each element, as often as it is repeated"
    numbers = known_numbers(repeats)
    assert numbers is not None
    return typed(c, c.constant(np.repeat(np.arange(len(numbers)), numbers), result.element_type), result.shape)


@formula("lower", "aten.repeat_interleave.Tensor", name="repeat_interleave by numbers",
         where=lambda repeats, output_size: [~is_known(repeats), output_size.is_in(None), _is_vector(repeats)],
         examples=[example("5xsi32[0,3]")])  # fmt: skip
def repeat_interleave(c: Coreai, repeats: Value, result: ValueType) -> Value:
    """The index of each element, as often as it is repeated: the rows of the true elements of a table, which has as
    many in each row as the row is repeated. Negative repeats, an error in eager PyTorch, count as 0."""
    repeats = c.cast(repeats, "si32")
    most = c.reshape(c.reduce_max(repeats, [0]), [])
    table = c.broadcasting_greater(c.expand_dims(repeats, [1]), c.expand_dims(c.range(0, most, 1), [0]))
    index = c.shrink_dims(c.slice_(c.non_zero(table), [0, 0], [END, 1], [1, 1]), [1])
    return c.cast(index, result.element_type)


@formula("lower", "aten.repeat_interleave.Tensor", name="repeat_interleave to a size",
         where=lambda repeats, output_size: [~output_size.is_in(None), _is_vector(repeats)],
         examples=[example("4xsi32[2,2]", output_size=8)])  # fmt: skip
def repeat_interleave_to_size(c: Coreai, repeats: Value, output_size: Size, result: ValueType) -> Value:
    "the index of each element, as often as it is repeated: how many elements end at or before a place"
    (size,) = wanted_sizes(result.shape, [output_size])
    ends = c.scan(c.cast(repeats, "si32"), 0, False, scan_op="sum")
    before = c.not_(c.broadcasting_greater(c.expand_dims(ends, [0]), c.expand_dims(positions(c, size), [1])))
    return c.cast(c.shrink_dims(c.reduce_sum(c.cast(before, "si32"), [1]), [1]), result.element_type)


def _is_countable(self: Capture) -> Expression:
    return (is_integral(self) & (self.rank == 1)).says("bincount needs integers in one dimension")


_NOT_NEGATIVE = "negative numbers are an error in eager PyTorch"
bincount = formula(
    "lower", "aten.bincount", name="bincount", where=lambda self, weights: [~is_given(weights), _is_countable(self)],
    examples=[example("9xsi32[0,5]"), example("9xui8[0,5]", minlength=2)],
    doc=f"how often each number occurs; {_NOT_NEGATIVE}",
)(lambda c, self, minlength, result: _summed(
    c, self, minlength, filled(c, 1, sizes_of(c, self), result.element_type)
))  # fmt: skip
weighted_bincount = formula(
    "lower", "aten.bincount", name="bincount of weights", examples=[example("9xsi64[0,5]", "9xf32", 8)],
    where=lambda self, weights: [is_given(weights), _is_countable(self)],
    doc=f"the sum of the weights of each number; {_NOT_NEGATIVE}",
)(lambda c, self, weights, minlength, result: _summed(
    c, self, minlength, c.cast(weights, result.element_type)
))  # fmt: skip


def _summed(c: Coreai, x: Value, least: Size, amounts: Value) -> Value:
    """The sum of the amounts of each number."""
    x = c.cast(x, "si32")
    last = plus(c, least, -1) if isinstance(least, Value) else c.constant(least - 1, "si32")
    largest = c.reduce_max(c.concat(0, [x, c.reshape(c.cast(last, "si32"), [1])]), [0])
    zeros = filled(c, 0, [plus(c, c.reshape(largest, []), 1)], amounts.element_type)
    return combine(c, zeros, 0, x, amounts, "sum")

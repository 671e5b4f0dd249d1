"""Histograms with equal bins; those with edges as results are decompositions."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering


@lowering("aten.histc", examples=[
    example("2x9xf32", 4, -1, 1), example("9xf32", 5), example("5xf32[2,2]", 3), example("f32", 2, 0, 9),
])  # fmt: skip
def histc(op: OpView, c: Coreai) -> Value:
    """x is in bin (x - low) * bins / (high - low); the last bin includes the upper edge. Values outside do not count.

    If both edges are equal, the smallest and largest value take their place, moved apart by 1 if those are equal, too.
    """
    x, bins = op["self"], op.bins
    element = x.element_type
    op.expect(is_float(element), "a histogram of integers is not supported; cast the input to float")
    low, high = c.constant(float(op.min), element), c.constant(float(op.max), element)
    if 0 in x.shape:
        return c.broadcast_to(c.constant(0.0, element), [bins])
    x = c.reshape(x, [-1])
    if op.min == op.max:
        low, high = (c.reshape(reduced(x, [0]), []) for reduced in (c.reduce_min, c.reduce_max))
        apart = c.cast(c.broadcasting_equal(low, high), element)
        low, high = c.broadcasting_sub(low, apart), c.broadcasting_add(high, apart)
    outside = c.broadcasting_or(c.broadcasting_greater(low, x), c.broadcasting_greater(x, high))
    outside = c.broadcasting_or(outside, c.broadcasting_not_equal(x, x))
    offset = c.broadcasting_sub(c.broadcasting_where(outside, low, x), low)
    scaled = c.broadcasting_divide(c.broadcasting_mul(offset, float(bins)), c.broadcasting_sub(high, low))
    position = c.broadcasting_minimum(c.cast(scaled, "si32"), bins - 1)
    amounts = c.cast(c.not_(outside), "f32")
    zeros = c.broadcast_to(c.constant(0.0, "f32"), [bins])
    return c.cast(c.scatter_along_axis(zeros, position, amounts, 0, scatter_mode="add"), element)

"""Scans: running sums, products and extremes along a dimension."""

from __future__ import annotations

import math
from typing import Literal

from patcomp.authoring import Coreai
from patcomp.ir.types import BIT_WIDTHS, is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rule, example, lowering
from patterns_catalog.lower.casts import convert
from patterns_catalog.lower.integer_sums import running_sum
from patterns_catalog.sizes import positions, size_of
from patterns_catalog.slices import slice_axis


@lowering("aten.cumsum", examples=[example("2x3xf32", 1), example("4xsi32[0,5]", -1), example("2x4xi1", 0)])
def cumsum(op: OpView, c: Coreai) -> Value:
    "running sums along one axis; sums of integers wrap"
    op.ignore("dtype", because="the result type has it")
    x = convert(c, op["self"], op.result.element_type)
    if x.rank == 0:
        op.ignore("dim", because="a 0-d tensor has one value")
        return x
    dim = op.dim % x.rank
    if is_float(x.element_type):
        return c.scan(x, dim, False, scan_op="sum")
    given = BIT_WIDTHS[op["self"].dtype] if not is_float(op["self"].element_type) else BIT_WIDTHS[x.dtype]
    return running_sum(c, x, dim, min(given, BIT_WIDTHS[x.dtype]))


@lowering("aten.cumprod", examples=[example("2x5xf32", 1), example("9xsi32[-9,9]", -1), example("2x4xi1", 0)])
def cumprod(op: OpView, c: Coreai) -> Value:
    """Products of integers wrap in PyTorch, where the runtime's scan aborts.

    So they are computed by doubling: after step k each element is the product of 2 ** k neighbours (Hillis, Steele).
    """
    op.ignore("dtype", because="the result type has it")
    x = convert(c, op["self"], op.result.element_type)
    if x.rank == 0:
        op.ignore("dim", because="a 0-d tensor has one value")
        return x
    dim = op.dim % x.rank
    if is_float(x.element_type):
        return c.scan(x, dim, False, scan_op="product")
    size, distance, one = x.shape[dim], 1, c.constant(1, x.element_type)
    op.expect(size is not None, "cumprod of integers needs a static size; export with that dimension fixed")
    while distance < size:
        padding = [0] * (2 * x.rank)
        padding[2 * dim] = distance
        earlier = c.pad(slice_axis(c, x, dim, 0, size - distance), padding, one, padding_mode="constant")
        x = c.broadcasting_mul(x, earlier)
        distance *= 2
    return x


def _running_extreme(name: Literal["max", "min"]) -> Rule:
    @lowering(f"aten.cum{name}", name=f"cum{name}", examples=[
        example("2x9xf32", 1), example("9x2xsi32[0,4]", 0), example("2x9xi1", -1), example("f32", 0),
    ])  # fmt: skip
    def rule(op: OpView, c: Coreai) -> list[Value]:
        """The values so far, from the first NaN on NaN, and the positions of the last of equals or the last NaN.

        A position is the last one so far where the element is the running extreme or a NaN.
        """
        x, element = op["self"], op.results[1].element_type
        if x.rank == 0:
            op.ignore("dim", because="a 0-d tensor has one value")
            return [x, c.constant(0, element)]
        dim = op.dim % x.rank
        size = x.shape[dim]
        wide = c.cast(x, "si32") if x.dtype == "i1" else x
        values = c.scan(wide, dim, False, scan_op=name)
        unordered = c.broadcasting_not_equal(wide, wide) if is_float(wide.element_type) else None
        if unordered is not None:  # the runtime's scan passes over NaN
            seen = c.scan(c.cast(unordered, "si32"), dim, False, scan_op="max")
            nan = c.constant(math.nan, wide.element_type)
            values = c.broadcasting_where(c.broadcasting_greater(seen, 0), nan, values)
        hit = c.broadcasting_equal(wide, values)
        if unordered is not None:
            hit = c.broadcasting_or(hit, unordered)
        shape = [1] * x.rank
        shape[dim] = -1 if size is None else size
        places = c.reshape(positions(c, size_of(c, x, dim)), shape)
        last = c.scan(c.broadcasting_where(hit, places, c.constant(0, "si32")), dim, False, scan_op="max")
        return [c.cast(values, x.element_type), c.cast(last, element)]

    return rule


cummax = _running_extreme("max")
cummin = _running_extreme("min")

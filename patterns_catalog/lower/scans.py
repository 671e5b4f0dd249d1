"""Scans: running sums, products and extremes along a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import OpView, Rule, example, formula, lowering
from patcomp.patterns.conditions import is_floating
from patterns_catalog.lower.casts import BY_RESULT, convert
from patterns_catalog.lower.integer_sums import running_sum
from patterns_catalog.lower.ordering import sortable
from patterns_catalog.sizes import positions, size_of
from patterns_catalog.slices import slice_axis


def _scan(name: str, kind: Literal["sum", "product"]) -> Rule:
    @formula("lower", f"aten.{name}", name=name, ignored=BY_RESULT,
             where=lambda self, result: [self.rank > 0, is_floating(result)],
             examples=[example("2x3xf32", 1), example("4xsi32[0,5]", -1, dtype="f32")])  # fmt: skip
    def rule(c: Coreai, self: Value, dim: int, result: ValueType) -> Value:
        "running sums or products along one axis"
        return c.scan(convert(c, self, result.element_type), dim % self.rank, False, scan_op=kind)

    return rule


cumsum = _scan("cumsum", "sum")
cumprod = _scan("cumprod", "product")


@formula("lower", "aten.cumsum", name="cumsum of integers", ignored=BY_RESULT,
         where=lambda self, result: [self.rank > 0, ~is_floating(result)],
         examples=[example("4xsi32[0,5]", -1), example("2x4xi1", 0)])  # fmt: skip
def integer_cumsum(c: Coreai, self: Value, dim: int, result: ValueType) -> Value:
    "running sums along one axis, which wrap"
    return running_sum(c, convert(c, self, result.element_type), dim % self.rank, self.element_type)


@lowering("aten.cumprod", name="cumprod of integers", examples=[example("9xsi32[-9,9]", -1), example("2x4xi1", 0)])
def integer_cumprod(op: OpView, c: Coreai) -> Value | None:
    """Products of integers wrap in PyTorch, where the runtime's scan aborts.

    So they are computed by doubling: after step k each element is the product of 2 ** k neighbours (Hillis, Steele).
    """
    if op["self"].rank == 0 or is_float(op.result.element_type):
        return None
    op.ignore("dtype", because="the result type has it")
    x = convert(c, op["self"], op.result.element_type)
    dim = op.dim % x.rank
    size, distance, one = x.shape[dim], 1, c.constant(1, x.element_type)
    op.expect(size is not None, "cumprod of integers needs a static size; export with that dimension fixed")
    while distance < size:
        padding = [0] * (2 * x.rank)
        padding[2 * dim] = distance
        earlier = c.pad(slice_axis(c, x, dim, 0, size - distance), padding, one, padding_mode="constant")
        x = c.broadcasting_mul(x, earlier)
        distance *= 2
    return x


def _last_place(c: Coreai, dim: int, hit: Value) -> Value:
    """The last place so far along a dimension where a condition holds."""
    size = hit.shape[dim]
    shape = [1] * hit.rank
    shape[dim] = -1 if size is None else size
    places = c.reshape(positions(c, size_of(c, hit, dim)), shape)
    return c.scan(c.broadcasting_where(hit, places, c.constant(0, "si32")), dim, False, scan_op="max")


def _running_extremes(name: Literal["max", "min"]) -> list[Rule]:
    """The rules for `cummax` or `cummin`: the values so far, and the last places where they were met."""

    @formula("lower", f"aten.cum{name}", name=f"cum{name}", where=lambda self: [self.rank > 0, is_floating(self)],
             examples=[example("2x9xf32", 1)])  # fmt: skip
    def of_floats(c: Coreai, self: Value, dim: int, results: Sequence[ValueType]) -> list[Value]:
        "from the first NaN on all values are NaN, and the places those of NaN; the runtime's scan passes over NaN"
        dim %= self.rank
        values = c.scan(self, dim, False, scan_op=name)
        unordered = c.broadcasting_not_equal(self, self)
        seen = c.scan(c.cast(unordered, "si32"), dim, False, scan_op="max")
        nan = c.constant(math.nan, self.element_type)
        values = c.broadcasting_where(c.broadcasting_greater(seen, 0), nan, values)
        hit = c.broadcasting_or(c.broadcasting_equal(self, values), unordered)
        return [values, c.cast(_last_place(c, dim, hit), results[1].element_type)]

    @formula("lower", f"aten.cum{name}", name=f"cum{name} of integers",
             where=lambda self: [self.rank > 0, ~is_floating(self)],
             examples=[example("9x2xsi32[0,4]", 0), example("2x9xi1", -1)])  # fmt: skip
    def of_integers(c: Coreai, self: Value, dim: int, results: Sequence[ValueType]) -> list[Value]:
        "bools are ordered as 0 and 1"
        dim, x = dim % self.rank, sortable(c, self)
        values = c.scan(x, dim, False, scan_op=name)
        last = _last_place(c, dim, c.broadcasting_equal(x, values))
        return [c.cast(values, self.element_type), c.cast(last, results[1].element_type)]

    return [of_floats, of_integers]


cummax = _running_extremes("max")
cummin = _running_extremes("min")

"""Comparisons, logic and choice. After normalize, both sides of a comparison have one element type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.types import element_name, is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rule, example, formula, lowering
from patterns_catalog.lower.casts import convert
from patterns_catalog.lower.elementwise import PAIR
from patterns_catalog.lower.rows import row
from patterns_catalog.numbers import number_in

_EXAMPLES = PAIR, example("9xsi32[0,3]", "9xsi32[0,3]"), example("4xi1", "4xi1")
_LOGIC = example("4xi1", "4xi1"), example("2x5xf32[0,1]", "5xsi32[0,1]")

eq = row("eq.Tensor", "broadcasting_equal", *_EXAMPLES, doc="the broadcasting comparison, false of NaN")
ne = row("ne.Tensor", "broadcasting_not_equal", *_EXAMPLES, doc="the broadcasting comparison, true of NaN")


def _order(name: str, formula: Callable[[Coreai, Value, Value], Value]) -> Rule:
    # the runtime orders no bools
    of_bools = lambda c, x, y: formula(c, c.cast(x, "si32"), c.cast(y, "si32"))  # noqa: E731
    doc = "the broadcasting comparison, false of NaN; bools are ordered as 0 and 1"
    return row(f"{name}.Tensor", formula, *_EXAMPLES, of={"bools": of_bools}, doc=doc)


gt = _order("gt", lambda c, x, y: c.broadcasting_greater(x, y))
lt = _order("lt", lambda c, x, y: c.broadcasting_greater(y, x))
# not(x < y) would be true of NaN
ge = _order("ge", lambda c, x, y: c.broadcasting_or(c.broadcasting_greater(x, y), c.broadcasting_equal(x, y)))
le = _order("le", lambda c, x, y: c.broadcasting_or(c.broadcasting_greater(y, x), c.broadcasting_equal(x, y)))

logical_and = row("logical_and", "broadcasting_and", *_LOGIC, computed="as the result", doc="whether both are not zero")
logical_or = row(
    "logical_or", "broadcasting_or", *_LOGIC, computed="as the result", doc="whether one of them is not zero"
)


@formula("lower", "aten.where.self", where=lambda condition, self, other: [
    (condition.dtype == "i1").says("the condition of where must be bool; cast it with .bool()"),
    (self.dtype == other.dtype).says("both branches of where must have the same dtype; cast one of them"),
], examples=[example("2x3xi1", "2x3xf32", "3xf32")])  # fmt: skip
def where(c: Coreai, condition: Value, self: Value, other: Value) -> Value:
    "a choice for each element, broadcasting"
    return c.broadcasting_where(condition, self, other)


@lowering(
    "aten.clamp",
    examples=[example("2x3xf32", -0.5, 0.5), example("2x3xf32", None, 0.5), example("5xsi32[-9,9]", -3, 3)],
)
def clamp(op: OpView, c: Coreai) -> Value:
    "min(max(x, low), high), so that NaN stays NaN and low > high gives high"
    x, low, high = op["self"], op.min, op.max
    element = op.result.element_type
    op.expect(is_float(element) or not any(map(_is_fraction, (low, high))), "clamp of integers needs integer bounds")
    x = c.cast(x, element)
    smallest, largest = (-(2**31), 2**31 - 1) if element_name(element) == "si32" else (-math.inf, math.inf)
    # the type may stand for a 64-bit one, whose values have 32 bits on the runtime: bounds beyond those bound nothing
    if isinstance(low, Value):
        x = c.broadcasting_maximum(x, convert(c, low, element))
    elif low is not None and not low <= smallest:
        op.expect(not low > largest, "the lower bound of clamp must fit 32 bits")
        x = c.broadcasting_maximum(x, c.constant(number_in(low, element), element))
    if isinstance(high, Value):
        x = c.broadcasting_minimum(x, convert(c, high, element))
    elif high is not None and not high >= largest:
        op.expect(not high < smallest, "the upper bound of clamp must fit 32 bits")
        x = c.broadcasting_minimum(x, c.constant(number_in(high, element), element))
    return x


def _is_fraction(bound: Any) -> bool:
    """Whether a number is a float; a size computed when the program runs is a 0-d tensor."""
    return is_float(bound.element_type) if isinstance(bound, Value) else isinstance(bound, float)

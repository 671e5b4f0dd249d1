"""Where float32 may differ from float64 by more than the rounding of a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from patcomp.ir.aten import AtenOp
from patcomp.ir.value import Value
from patcomp.narrowing.op_groups import MOVES, aten
from patcomp.narrowing.ranges import Range, number

_EXACT = MOVES | aten("abs amax amin arange.start_step clamp max maximum min minimum neg relu sign")
"""Ops whose results have no more digits than their operands, unless they accumulate."""

_DECISIONS = aten(
    "all any argmax argmin ceil eq.Scalar eq.Tensor floor ge.Scalar ge.Tensor gt.Scalar gt.Tensor le.Scalar le.Tensor"
    " logical_not lt.Scalar lt.Tensor max.dim min.dim ne.Scalar ne.Tensor nonzero round sort sort.stable topk trunc"
)
"""Discontinuous ops: a rounded operand may change the result, an exact one does not."""

_RELATIVE = aten("div.Scalar div.Tensor mul.Scalar mul.Tensor reciprocal rsqrt sqrt square")
"""Ops that round once and roughly keep the relative error of their operands."""

_SUMS = aten("add.Scalar add.Tensor sub.Scalar sub.Tensor rsub.Scalar")

_FUNCTIONS = aten(
    "acos acosh asin asinh atan atanh cos cosh erf exp exp2 expm1 log log10 log1p log2 pow.Scalar pow.Tensor_Scalar"
    " pow.Tensor_Tensor sigmoid sin sinh tan tanh"
)
"""Functions that round once and may enlarge the error of a rounded operand."""

_BORDERS = aten("complex imag real")
"""Ops between complex numbers and their parts, at the inputs and outputs; the dialect has no complex128."""


def rounded_beyond_result(
    op: AtenOp, given: Mapping[str, Any], range_of: Callable[[Value], Range]
) -> tuple[bool, bool]:
    """Whether an op on float64 may differ in float32 by more than its rounding; and whether its results are rounded."""
    operands = [range_of(value) for value in map(Value, op.operands)]
    operands += [number(value) for value in given.values() if isinstance(value, float)]
    rounded = any(operand.rounded for operand in operands)
    if op.name == "aten._to_copy":
        target = Value(op.results[0]).dtype
        return rounded and target[:2] in ("si", "ui"), range_of(Value(op.results[0])).rounded
    if op.name in _EXACT and not given.get("accumulate"):
        return False, rounded
    if op.name in _DECISIONS:
        return rounded, False
    if op.name in _RELATIVE:
        return False, True
    if op.name in _SUMS:
        return rounded and not _of_one_sign(op, operands), True
    if op.name in _FUNCTIONS:
        return rounded, True
    return op.name not in _BORDERS, True


def _of_one_sign(op: AtenOp, operands: list[Range]) -> bool:
    """Whether nothing cancels in a sum or difference."""
    if len(operands) != 2:
        return False
    first, second = operands
    if "sub" in op.name:
        second = -second
    return (first.low >= 0 and second.low >= 0) or (first.high <= 0 and second.high <= 0)

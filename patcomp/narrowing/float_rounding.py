"""Where float32 may differ from float64 by more than the rounding of a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from patcomp.ir.aten import AtenOp
from patcomp.ir.value import Value
from patcomp.narrowing.ranges import Range, number


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
    facts = op.FACTS
    if (facts.elements or facts.float == "exact") and not given.get("accumulate"):
        return False, rounded
    match facts.float:
        case "decision":  # a rounded operand may change the result, an exact one does not
            return rounded, False
        case "relative":
            return False, True
        case "sum":
            return rounded and not _of_one_sign(op, operands), True
        case "function":
            return rounded, True
    return not facts.complex, True  # complex numbers and their parts stand at the inputs and outputs


def _of_one_sign(op: AtenOp, operands: list[Range]) -> bool:
    """Whether nothing cancels in a sum or difference."""
    if len(operands) != 2:
        return False
    first, second = operands
    if "sub" in op.name:
        second = -second
    return (first.low >= 0 and second.low >= 0) or (first.high <= 0 and second.high <= 0)

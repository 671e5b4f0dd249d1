"""The ranges of the results of `aten` ops, from the ranges of their arguments.

The functions have the names by which the rows of `ir/aten_facts.txt` call them: `TRANSFER` at the end has those of one
expression, and the functions above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from patcomp.ir.aten import AtenOp
from patcomp.ir.traits import Selection
from patcomp.ir.xdsl import Operation
from patcomp.narrowing.ranges import (
    ANY_NUMBER,
    BOOL,
    FALSE,
    LONGEST,
    MOST_ELEMENTS,
    TRUE,
    PythonNumber,
    Range,
    RangedOp,
    Transfer,
    converted,
    number,
    span,
)

# ---- what rows of the table have in common -------------------------------------------------------


def _filled(op: RangedOp, name: str) -> Range:
    """The range of a tensor that is filled with a number."""
    return op[name] if op.of_floats else op[name].whole()


def _positions(op: RangedOp, dim: Any) -> Range:
    """The positions along a dimension of `self`."""
    return Range(0, op.length(dim) - 1)


def _values_and_positions(op: RangedOp, dim: Any) -> Sequence[Range]:
    return [op["self"], _positions(op, dim)]


def _sign(value: PythonNumber) -> int:
    return (value > 0) - (value < 0)


def _larger(a: Range, b: Range) -> Range:
    return replace(a | b, low=max(a.low, b.low), high=max(a.high, b.high))


def _smaller(a: Range, b: Range) -> Range:
    return replace(a | b, low=min(a.low, b.low), high=min(a.high, b.high))


def _not(truth: Range) -> Range:
    return Range(1 - truth.high, 1 - truth.low)


def _less(a: Range, b: Range) -> Range:
    """The range of `a < b`."""
    return TRUE if a.high < b.low else FALSE if a.low >= b.high else BOOL


def _equal(a: Range, b: Range) -> Range:
    """The range of `a == b`."""
    if a.high < b.low or b.high < a.low:
        return FALSE
    return TRUE if a.point is not None and a.point == b.point else BOOL


def _sums(x: Range, count: int) -> Range:
    """Sums of 0 to `count` numbers of a range."""
    return FALSE | x.sums(count)


def _power_of_two(a: Range) -> PythonNumber:
    """A power of two that is larger than all numbers of a range, negative ones by magnitude."""
    largest = max(a.high, -a.low - 1, 0)
    return 1 << int(largest).bit_length() if math.isfinite(largest) else math.inf


# ---- numbers that only move, and their sums ------------------------------------------------------


def _accumulated(op: RangedOp, name: str) -> Range:
    """The range of `self` plus the sum of any elements of another argument."""
    return op["self"] + _sums(op[name], op.length(None, name))


def _put(op: RangedOp) -> Range:
    return _accumulated(op, "values") if op.given["accumulate"] else op["self"] | op["values"]


def _scattered(op: RangedOp) -> Range:
    return _accumulated(op, "src")


def _reduced(op: RangedOp) -> Range:
    if op.given["reduce"] in ("amax", "amin", "mean"):
        return op["self"] | op["src"]
    return _accumulated(op, "src") if op.given["reduce"] in ("sum", "add") else ANY_NUMBER


def _chosen(op: RangedOp) -> Range:
    condition = op["condition"].point
    return op["other"] if condition == 0 else op["self"] if condition == 1 else op["self"] | op["other"]


# ---- sizes ---------------------------------------------------------------------------------------


def _arange(op: RangedOp) -> Range:
    start, end, step = op["start"], op["end"], op["step"]
    count = op.results[0].shape[0]
    last = (LONGEST if count is None else max(1, count)) - 1
    bounds = start | (start + step * number(last))
    if op.of_floats or step.low <= 0 or end.size:
        return bounds
    return bounds.clipped(Range(start.low, max(start.low, end.high - 1)))


def _size(op: RangedOp) -> Range:
    x = op.given["self"]
    known = x.shape[op.given["dim"] % x.rank]
    return Range(0, LONGEST, size=True) if known is None else number(known)


def _nonzero(op: RangedOp) -> Range:
    sizes = [LONGEST if size is None else size for size in op.given["self"].shape]
    return Range(0, max([1, *sizes]) - 1)


def _repeated(op: RangedOp) -> Range:
    (count,) = op.given["repeats"].shape
    return Range(0, (LONGEST if count is None else max(1, count)) - 1)


# ---- arithmetic ----------------------------------------------------------------------------------


def _mul(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    if a.size and b.size:
        return Range(0, MOST_ELEMENTS, size=True)
    if op.given["self"] == op.given["other"]:
        a = b = abs(a)  # a square
    return a * b


def _div(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    if b.low <= 0 <= b.high:
        return replace(ANY_NUMBER, rounded=a.rounded or b.rounded)
    return span((x / y for x in (a.low, a.high) for y in (b.low, b.high)), (a, b))


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _rounded_div(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    if op.of_floats:
        return replace(ANY_NUMBER, rounded=a.rounded or b.rounded)
    if b.low <= 0 <= b.high or not all(map(math.isfinite, (a.low, a.high, b.low, b.high))):
        return Range(-a.magnitude, a.magnitude)
    pairs = [(int(x), int(y)) for x in (a.low, a.high) for y in (b.low, b.high)]
    return span(x // y if op.given["rounding_mode"] == "floor" else _truncated(x, y) for x, y in pairs)


def _remainder(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    if op.of_floats:
        return Range(min(0, b.low), max(0, b.high), a.rounded or b.rounded)
    low, high = min(0, b.low + 1), max(0, b.high - 1)
    return Range(0, min(high, a.high)) if a.low >= 0 and b.low > 0 else Range(low, high)


def _fmod(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    largest = b.magnitude if op.of_floats else max(0, b.magnitude - 1)
    return Range(max(min(a.low, 0), -largest), min(max(a.high, 0), largest), a.rounded or b.rounded)


_LARGEST_POWER = 64
"""Two or more to a larger power is beyond 64 bits anyway."""


def _pow(op: RangedOp) -> Range:
    x, exponent = op["self"], op["exponent"]
    even = exponent.point is not None and exponent.point % 2 == 0
    positive = even or x.low >= 0
    if op.of_floats:
        return Range(0 if positive else -math.inf, math.inf, x.rounded or exponent.rounded)
    largest, power = x.magnitude, max(0, exponent.high)  # negative powers are -1, 0 or 1
    high: PythonNumber = math.inf
    if largest <= 1 or (power <= _LARGEST_POWER and math.isfinite(largest)):
        high = max(1, largest ** min(power, _LARGEST_POWER))
    return Range(0 if positive else -high, high)


def _prod(op: RangedOp) -> Range:
    x, count = op["self"], op.length(op.given.get("dim"))
    largest = x.magnitude
    high: PythonNumber = 1 if largest <= 1 else math.inf
    if largest > 1 and count <= _LARGEST_POWER and math.isfinite(largest) and not op.of_floats:
        high = largest**count
    return Range(0 if x.low >= 0 else -high, high, x.rounded)


def _matrix_product(op: RangedOp) -> Range:
    left, right = op.given.values()
    inner = left.shape[-1]
    return _sums(op.range(left) * op.range(right), LONGEST if inner is None else max(1, inner))


# ---- bits ----------------------------------------------------------------------------------------


def _and(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    if a.point is not None and b.point is not None:
        return number(int(a.point) & int(b.point))
    if a.low >= 0 or b.low >= 0:
        return Range(0, min(each.high for each in (a, b) if each.low >= 0))
    return Range(-max(_power_of_two(a), _power_of_two(b)), max(a.high, b.high))


def _or(op: RangedOp) -> Range:
    a, b = op["self"], op["other"]
    largest = max(_power_of_two(a), _power_of_two(b))
    return Range(0 if a.low >= 0 and b.low >= 0 else -largest, largest - 1)


def _bitwise_not(op: RangedOp) -> Range:
    x = op["self"]
    return _not(x) if op.results[0].dtype == "i1" else Range(-1 - x.high, -1 - x.low)


# ---- bounds and rounding -------------------------------------------------------------------------


def _clamp(op: RangedOp) -> Range:
    x = op["self"]
    low, high = (op.given.get(name, op.given.get(f"{name}_val")) for name in ("min", "max"))
    if low is not None:
        x = _larger(x, op.range(low))
    if high is not None:
        x = _smaller(x, op.range(high))
    return x if op.of_floats else x.whole()


def _to_whole(op: RangedOp) -> Range:
    x = op["self"]
    low = math.floor(x.low) if math.isfinite(x.low) else x.low
    return replace(x, low=low, high=math.ceil(x.high) if math.isfinite(x.high) else x.high)


# ---- functions of floats -------------------------------------------------------------------------


def _bounded(low: PythonNumber, high: PythonNumber) -> Transfer:
    """A function whose result is between two numbers."""
    return lambda op: Range(low, high, op["self"].rounded)


_SMALLEST = {"f64": 2.0**-1074, "f16": 2.0**-24}
"""The smallest positive number of a type, if not that of float32."""


def _logarithm(base: float) -> Transfer:
    def function(op: RangedOp) -> Range:
        x, smallest = op["self"], _SMALLEST.get(op.results[0].dtype, 2.0**-149)
        low, high = (
            math.inf if bound == math.inf else math.log(max(bound, smallest), base) for bound in (x.low, x.high)
        )
        return Range(low, high, x.rounded)

    return function


def _sqrt(op: RangedOp) -> Range:
    x = op["self"]
    return Range(math.sqrt(max(x.low, 0)), math.sqrt(max(x.high, 0)), x.rounded)


def _inverse(op: RangedOp) -> Range:
    x = op["self"]
    return Range(0, math.inf, x.rounded) if x.low >= 0 else replace(ANY_NUMBER, rounded=x.rounded)


# ---- the functions by name -----------------------------------------------------------------------

TRANSFER: Mapping[str, Transfer] = {
    # numbers that only move
    "self": lambda op: [op.range(next(iter(op.given.values())))] * len(op.results),
    "tensors": lambda op: op["tensors"],
    "src": lambda op: op["src"],
    "weight": lambda op: op["weight"],
    "self_or_value": lambda op: op["self"] | op["value"],
    "self_or_src": lambda op: op["self"] | op["src"],
    "self_or_source": lambda op: op["self"] | op["source"],
    # new tensors
    "fill_value": lambda op: _filled(op, "fill_value"),
    "s": lambda op: _filled(op, "s"),
    "zeros": lambda op: FALSE,  # zeros, after lowering
    "triangle": lambda op: Range(0, max(0, (op["row"] | op["col"]).high - 1)),
    # positions
    "position": lambda op: _positions(op, op.given["dim"]),
    "value_and_position": lambda op: _values_and_positions(op, op.given["dim"]),
    "pool2d": lambda op: _values_and_positions(op, [-2, -1]),
    "pool3d": lambda op: _values_and_positions(op, [-3, -2, -1]),
    # arithmetic
    "add": lambda op: op["self"] + op["other"] * op["alpha"],
    "sub": lambda op: op["self"] - op["other"] * op["alpha"],
    "rsub": lambda op: op["other"] - op["self"] * op["alpha"],
    "neg": lambda op: -op["self"],
    "abs": lambda op: abs(op["self"]),
    "sign": lambda op: Range(_sign(op["self"].low), _sign(op["self"].high)),
    "gcd": lambda op: Range(0, (op["self"] | op["other"]).magnitude),
    "sum": lambda op: _sums(op["self"], op.length(op.given.get("dim"))),
    "cumsum": lambda op: op["self"].sums(op.length(op.given["dim"])),
    # comparisons and truth
    "lt": lambda op: _less(op["self"], op["other"]),
    "le": lambda op: _not(_less(op["other"], op["self"])),
    "gt": lambda op: _less(op["other"], op["self"]),
    "ge": lambda op: _not(_less(op["self"], op["other"])),
    "eq": lambda op: _equal(op["self"], op["other"]),
    "ne": lambda op: _not(_equal(op["self"], op["other"])),
    "not": lambda op: _not(converted(op["self"], "i1", "i1")),
    "bool": lambda op: BOOL,
    # bounds, casts
    "maximum": lambda op: _larger(op["self"], op["other"]),
    "minimum": lambda op: _smaller(op["self"], op["other"]),
    "relu": lambda op: _larger(op["self"], FALSE),
    "cast": lambda op: converted(op["self"], op.given["self"].dtype, op.results[0].dtype),
    # bounded functions of floats
    "from_0_to_1": _bounded(0, 1),
    "from_-1_to_1": _bounded(-1, 1),
    "from_0": _bounded(0, math.inf),
    "from_-1": _bounded(-1, math.inf),
    "half_circle": _bounded(-math.pi / 2, math.pi / 2),
    "from_0_to_pi": _bounded(0, math.pi),
    "log": _logarithm(math.e),
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    # the functions above
    "put": _put,
    "scatter_add": _scattered,
    "scatter_reduce": _reduced,
    "where": _chosen,
    "arange": _arange,
    "size": _size,
    "nonzero": _nonzero,
    "repeat_interleave": _repeated,
    "mul": _mul,
    "div": _div,
    "rounded_div": _rounded_div,
    "remainder": _remainder,
    "fmod": _fmod,
    "pow": _pow,
    "prod": _prod,
    "matmul": _matrix_product,
    "bitwise_and": _and,
    "bitwise_or": _or,
    "bitwise_not": _bitwise_not,
    "clamp": _clamp,
    "whole": _to_whole,
    "sqrt": _sqrt,
    "inverse": _inverse,
}
"""The transfer functions, by `OpFacts.range`."""


def transfer_of(kind: type[Operation]) -> Transfer | None:
    """The transfer function of a class of ops; None if the ranges of their results are unknown."""
    if not issubclass(kind, AtenOp):
        return None
    if kind.FACTS.range:
        return TRANSFER[kind.FACTS.range]
    return TRANSFER["self"] if kind.has_trait(Selection) else None

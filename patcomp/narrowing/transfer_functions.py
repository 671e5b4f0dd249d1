"""The ranges of the results of each `aten` op, from those of its arguments. See `ranges.py` for how to add one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from patcomp.ir.value import Value
from patcomp.narrowing.ranges import (
    BOOL,
    FALSE,
    LONGEST,
    MOST_ELEMENTS,
    TRUE,
    UNKNOWN,
    Number,
    Range,
    RangedOp,
    Transfer,
    bits,
    converted,
    hull,
    magnitude,
    negative,
    number,
    product,
    repeated,
    span,
    total,
    transfer,
)

# ---- numbers that only move -----------------------------------------------------------------------


@transfer(
    "alias", "as_strided", "clone", "contiguous", "detach", "diagonal", "expand", "flip", "gather",
    "index.Tensor", "index_select", "lift_fresh_copy", "masked_select", "permute", "pixel_shuffle",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "repeat", "repeat_interleave.self_int",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "reshape", "select.int", "slice.Tensor", "squeeze",
    "squeeze.dim", "squeeze.dims", "t", "transpose.int", "unfold", "unsqueeze", "view", "_unsafe_view",
    "amax", "amin", "max", "min", "mean", "mean.dim",
)  # fmt: skip
def _moved(op: RangedOp) -> Range:
    return op.range("self")


@transfer("split_with_sizes", "split.Tensor", "unbind.int")
def _split(op: RangedOp) -> Sequence[Range]:
    return [op.range("self")] * len(op.results)


@transfer("cat", "stack")
def _joined(op: RangedOp) -> Range:
    return op.range("tensors")


@transfer("copy")
def _copied(op: RangedOp) -> Range:
    return op.range("src")


@transfer("embedding")
def _embedded(op: RangedOp) -> Range:
    return op.range("weight")


@transfer("constant_pad_nd")
def _padded(op: RangedOp) -> Range:
    return hull([op.range("self"), op.range("value")])


@transfer("scatter.src", "select_scatter", "slice_scatter")
def _written(op: RangedOp) -> Range:
    return hull([op.range("self"), op.range("src")])


@transfer("scatter.value")
def _filled(op: RangedOp) -> Range:
    return hull([op.range("self"), op.range("value")])


@transfer("masked_scatter")
def _scattered(op: RangedOp) -> Range:
    return hull([op.range("self"), op.range("source")])


@transfer("index_put", "_index_put_impl", "_unsafe_index_put")
def _put(op: RangedOp) -> Range:
    old, new = op.range("self"), op.range("values")
    return total(old, _several(new, op.length(None, "values"))) if op.given["accumulate"] else hull([old, new])


@transfer("scatter_add")
def _added(op: RangedOp) -> Range:
    return total(op.range("self"), _several(op.range("src"), op.length(None, "src")))


@transfer("scatter_reduce.two", "scatter.reduce")
def _reduced(op: RangedOp) -> Range:
    kind, old, new = op.given["reduce"], op.range("self"), op.range("src")
    if kind in ("amax", "amin", "mean"):
        return hull([old, new])
    return total(old, _several(new, op.length(None, "src"))) if kind in ("sum", "add") else UNKNOWN


@transfer("where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther")
def _chosen(op: RangedOp) -> Range:
    condition = op.range("condition")
    chosen = {0: ["other"], 1: ["self"]}.get(condition.point, ["self", "other"])  # type: ignore[arg-type]
    return hull(map(op.range, chosen))


# ---- new tensors ---------------------------------------------------------------------------------


@transfer("full", "full_like")
def _full(op: RangedOp) -> Range:
    value = op.range("fill_value")
    return value if op.of_floats else _whole(value)


@transfer("empty_permuted")
def _uninitialized(op: RangedOp) -> Range:
    return FALSE  # zeros, after lowering


@transfer("scalar_tensor")
def _scalar(op: RangedOp) -> Range:
    value = op.range("s")
    return value if op.of_floats else _whole(value)


@transfer("arange.start_step")
def _counted(op: RangedOp) -> Range:
    start, end, step = op.range("start"), op.range("end"), op.range("step")
    count = op.results[0].shape[0]
    last = (LONGEST if count is None else max(1, count)) - 1
    if not last:
        return start
    bounds = hull([start, total(start, product(step, number(last)))])
    if op.of_floats or step.low <= 0 or end.size:
        return bounds
    return bounds.clipped(Range(start.low, max(start.low, end.high - 1)))


@transfer("tril_indices", "triu_indices")
def _of_triangle(op: RangedOp) -> Range:
    sizes = hull([op.range("row"), op.range("col")])
    return Range(0, max(0, sizes.high - 1))


@transfer("sym_size.int")
def _size(op: RangedOp) -> Range:
    x = op.given["self"]
    known = x.shape[op.given["dim"] % x.rank]
    return Range(0, LONGEST, size=True) if known is None else number(known)


# ---- positions -----------------------------------------------------------------------------------


def _position(op: RangedOp, dim: Any) -> Range:
    return Range(0, op.length(dim) - 1)


@transfer("argmax", "argmin")
def _where_extreme(op: RangedOp) -> Range:
    return _position(op, op.given["dim"])


@transfer("nonzero")
def _where_not_zero(op: RangedOp) -> Range:
    sizes = [LONGEST if size is None else size for size in op.given["self"].shape]
    return Range(0, max([1, *sizes]) - 1)


@transfer("max.dim", "min.dim", "sort", "sort.stable", "topk", "cummax", "cummin")
def _with_positions(op: RangedOp) -> Sequence[Range]:
    return [op.range("self"), _position(op, op.given["dim"])]


@transfer("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _pooled(op: RangedOp) -> Sequence[Range]:
    axes = range(-3 if "3d" in op.name else -2, 0)
    return [op.range("self"), _position(op, list(axes))]


# ---- arithmetic ----------------------------------------------------------------------------------


def _scaled(op: RangedOp, name: str) -> Range:
    """An operand times `alpha`."""
    return product(op.range(name), op.range(op.given.get("alpha", 1)))


@transfer("add.Tensor", "add.Scalar")
def _add(op: RangedOp) -> Range:
    return total(op.range("self"), _scaled(op, "other"))


@transfer("sub.Tensor", "sub.Scalar")
def _sub(op: RangedOp) -> Range:
    return total(op.range("self"), negative(_scaled(op, "other")))


@transfer("rsub.Scalar", "rsub.Tensor")
def _rsub(op: RangedOp) -> Range:
    return total(op.range("other"), negative(_scaled(op, "self")))


@transfer("mul.Tensor", "mul.Scalar")
def _mul(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    if a.size and b.size:
        return Range(0, MOST_ELEMENTS, size=True)
    if _same(op, "self", "other"):
        square = product(magnitude(a), magnitude(a))
        return replace(square, rounded=a.rounded)
    return product(a, b)


def _same(op: RangedOp, *names: str) -> bool:
    first, second = (op.given[name] for name in names)
    return isinstance(first, Value) and first == second


@transfer("neg")
def _neg(op: RangedOp) -> Range:
    return negative(op.range("self"))


@transfer("abs")
def _abs(op: RangedOp) -> Range:
    return magnitude(op.range("self"))


@transfer("sign")
def _sign(op: RangedOp) -> Range:
    x = op.range("self")
    return Range(-1 if x.low < 0 else 0 if x.low == 0 else 1, 1 if x.high > 0 else 0 if x.high == 0 else -1)


@transfer("div.Tensor", "div.Scalar")
def _div(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    if b.low <= 0 <= b.high:
        return replace(UNKNOWN, rounded=a.rounded or b.rounded)
    return span((_over(x, y) for x in (a.low, a.high) for y in (b.low, b.high)), (a, b))


def _over(a: Number, b: Number) -> Number:
    return math.nan if math.isinf(a) and math.isinf(b) else a / b


@transfer("div.Tensor_mode", "div.Scalar_mode")
def _rounded_div(op: RangedOp) -> Range:
    if op.of_floats:
        return replace(UNKNOWN, rounded=hull([op.range("self"), op.range("other")]).rounded)
    a, b = op.range("self"), op.range("other")
    floor = op.given["rounding_mode"] == "floor"
    if b.low <= 0 <= b.high or not all(map(math.isfinite, (a.low, a.high, b.low, b.high))):
        largest = magnitude(a).high
        return Range(-largest, largest)
    quotients = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return span(int(x) // int(y) if floor else _truncated(int(x), int(y)) for x, y in quotients)


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@transfer("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    if op.of_floats:
        return Range(min(0, b.low), max(0, b.high), a.rounded or b.rounded)
    low, high = min(0, b.low + 1), max(0, b.high - 1)
    return Range(0, min(high, a.high)) if a.low >= 0 and b.low > 0 else Range(low, high)


@transfer("fmod.Tensor", "fmod.Scalar")
def _fmod(op: RangedOp) -> Range:
    a, b = op.range("self"), magnitude(op.range("other"))
    largest = b.high if op.of_floats else max(0, b.high - 1)
    return Range(max(min(a.low, 0), -largest), min(max(a.high, 0), largest), a.rounded or b.rounded)


@transfer("gcd")
def _gcd(op: RangedOp) -> Range:
    return Range(0, max(magnitude(op.range("self")).high, magnitude(op.range("other")).high))


_LARGEST_POWER = 64
"""Two or more to a larger power is beyond 64 bits anyway."""


@transfer("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(op: RangedOp) -> Range:
    x, exponent = op.range("self"), op.range("exponent")
    even = exponent.point is not None and exponent.point % 2 == 0
    positive = even or x.low >= 0
    if op.of_floats:
        return Range(0 if positive else -math.inf, math.inf, x.rounded or exponent.rounded)
    largest, power = magnitude(x).high, max(0, exponent.high)  # negative powers are -1, 0 or 1
    high: Number = math.inf
    if largest <= 1 or (power <= _LARGEST_POWER and math.isfinite(largest)):
        high = max(1, largest ** min(power, _LARGEST_POWER))
    return Range(0 if positive else -high, high)


# ---- sums and products ---------------------------------------------------------------------------


def _several(x: Range, count: int) -> Range:
    """Sums of 0 to `count` numbers of a range."""
    return hull([FALSE, repeated(x, count)])


@transfer("sum.dim_IntList", "sum")
def _sum(op: RangedOp) -> Range:
    return _several(op.range("self"), op.length(op.given.get("dim")))


@transfer("cumsum")
def _cumsum(op: RangedOp) -> Range:
    return repeated(op.range("self"), op.length(op.given["dim"]))


@transfer("prod", "prod.dim_int", "cumprod")
def _prod(op: RangedOp) -> Range:
    x, count = op.range("self"), op.length(op.given.get("dim"))
    largest = magnitude(x).high
    high: Number = 1 if largest <= 1 else math.inf
    if largest > 1 and count <= _LARGEST_POWER and math.isfinite(largest) and not op.of_floats:
        high = largest**count
    return Range(0 if x.low >= 0 else -high, high, x.rounded)


@transfer("mm", "bmm", "matmul", "_int_mm")
def _matrix_product(op: RangedOp) -> Range:
    left, right = [value for value in op.given.values() if isinstance(value, Value)][:2]
    inner = left.shape[-1]
    return _several(product(op.range(left), op.range(right)), LONGEST if inner is None else max(1, inner))


# ---- bits and truth ------------------------------------------------------------------------------


@transfer("bitwise_and.Tensor", "bitwise_and.Scalar")
def _and(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    if a.point is not None and b.point is not None:
        return number(int(a.point) & int(b.point))
    if a.low >= 0 or b.low >= 0:
        return Range(0, min(each.high for each in (a, b) if each.low >= 0))
    return Range(-max(bits(a), bits(b)), max(a.high, b.high))


@transfer("bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_xor.Tensor", "bitwise_xor.Scalar")
def _or(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    largest = max(bits(a), bits(b))
    return Range(0 if a.low >= 0 and b.low >= 0 else -largest, largest - 1)


@transfer("bitwise_not")
def _not(op: RangedOp) -> Range:
    x = op.range("self")
    return Range(1 - x.high, 1 - x.low) if op.results[0].dtype == "i1" else Range(-1 - x.high, -1 - x.low)


@transfer("logical_not")
def _logical_not(op: RangedOp) -> Range:
    x = converted(op.range("self"), "i1", "i1")
    return Range(1 - x.high, 1 - x.low)


@transfer("lt.Tensor", "lt.Scalar")
def _lt(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    return TRUE if a.high < b.low else FALSE if a.low >= b.high else BOOL


@transfer("le.Tensor", "le.Scalar")
def _le(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    return TRUE if a.high <= b.low else FALSE if a.low > b.high else BOOL


@transfer("gt.Tensor", "gt.Scalar")
def _gt(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    return TRUE if a.low > b.high else FALSE if a.high <= b.low else BOOL


@transfer("ge.Tensor", "ge.Scalar")
def _ge(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    return TRUE if a.low >= b.high else FALSE if a.high < b.low else BOOL


@transfer("eq.Tensor", "eq.Scalar")
def _eq(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    if a.high < b.low or b.high < a.low:
        return FALSE
    return TRUE if a.point is not None and a.point == b.point else BOOL


@transfer("ne.Tensor", "ne.Scalar")
def _ne(op: RangedOp) -> Range:
    a, b = op.range("self"), op.range("other")
    if a.high < b.low or b.high < a.low:
        return TRUE
    return FALSE if a.point is not None and a.point == b.point else BOOL


# ---- bounds and rounding -------------------------------------------------------------------------


@transfer("clamp", "hardtanh")
def _clamp(op: RangedOp) -> Range:
    x = op.range("self")
    for name, bound in (("min", "low"), ("max", "high")):
        limit = op.given.get(name, op.given.get(f"{name}_val"))
        if limit is None:
            continue
        given = op.range(limit)
        x = _larger(x, given) if bound == "low" else _smaller(x, given)
    return x if op.of_floats else _whole(x)


def _larger(a: Range, b: Range) -> Range:
    return replace(hull([a, b]), low=max(a.low, b.low), high=max(a.high, b.high))


def _smaller(a: Range, b: Range) -> Range:
    return replace(hull([a, b]), low=min(a.low, b.low), high=min(a.high, b.high))


@transfer("maximum")
def _maximum(op: RangedOp) -> Range:
    return _larger(op.range("self"), op.range("other"))


@transfer("minimum")
def _minimum(op: RangedOp) -> Range:
    return _smaller(op.range("self"), op.range("other"))


@transfer("relu")
def _relu(op: RangedOp) -> Range:
    return _larger(op.range("self"), FALSE)


@transfer("floor", "ceil", "round", "trunc")
def _to_whole(op: RangedOp) -> Range:
    x = op.range("self")
    low = math.floor(x.low) if math.isfinite(x.low) else x.low
    return replace(x, low=low, high=math.ceil(x.high) if math.isfinite(x.high) else x.high)


def _whole(x: Range) -> Range:
    """The numbers of a range, cut toward zero."""
    low, high = (int(bound) if math.isfinite(bound) else bound for bound in (x.low, x.high))
    return replace(x, low=low, high=high)


@transfer("_to_copy")
def _cast(op: RangedOp) -> Range:
    source, target = op.given["self"].dtype, op.results[0].dtype
    return converted(op.range("self"), source, target)


# ---- functions of floats -------------------------------------------------------------------------

_BOUNDED = {
    **dict.fromkeys(("sigmoid", "_softmax", "hardsigmoid"), (0, 1)),
    **dict.fromkeys(("tanh", "sin", "cos", "erf"), (-1, 1)),
    **dict.fromkeys(("exp", "exp2", "cosh", "linalg_vector_norm"), (0, math.inf)),
    **dict.fromkeys(("asin", "atan"), (-math.pi / 2, math.pi / 2)),
    "acos": (0, math.pi),
    "expm1": (-1, math.inf),
}


def _bounded(low: Number, high: Number) -> Transfer:
    def function(op: RangedOp) -> Range:
        x = op.range(next(value for value in op.given.values() if isinstance(value, Value)))
        return Range(low, high, x.rounded)

    return function


for _name, _bounds in _BOUNDED.items():
    transfer(_name)(_bounded(*_bounds))

_SMALLEST = {"f64": 2.0**-1074, "f16": 2.0**-24}
"""The smallest positive number of a type, if not that of float32."""


def _logarithm(base: float) -> Transfer:
    def function(op: RangedOp) -> Range:
        x, smallest = op.range("self"), _SMALLEST.get(op.results[0].dtype, 2.0**-149)
        low, high = (
            math.inf if bound == math.inf else math.log(max(bound, smallest), base) for bound in (x.low, x.high)
        )
        return Range(low, high, x.rounded)

    return function


for _name, _base in {"log": math.e, "log2": 2.0, "log10": 10.0}.items():
    transfer(_name)(_logarithm(_base))


@transfer("sqrt")
def _sqrt(op: RangedOp) -> Range:
    x = op.range("self")
    return Range(math.sqrt(max(x.low, 0)), math.sqrt(max(x.high, 0)), x.rounded)


@transfer("rsqrt", "reciprocal")
def _inverse(op: RangedOp) -> Range:
    x = op.range("self")
    return Range(0, math.inf, x.rounded) if x.low >= 0 else replace(UNKNOWN, rounded=x.rounded)


@transfer("logical_and", "logical_or", "any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def _truth(op: RangedOp) -> Range:
    return BOOL

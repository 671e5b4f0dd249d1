"""Wrong rules that move arithmetic into 16 bits, where it overflows, becomes zero, or rounds visibly."""

from __future__ import annotations

from typing import Any

import torch

from patcomp.authoring import AtenSource, AtenTarget, Coreai, Targets
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, CompositeTable, Rewrite, rule
from tests.proof_seeds.normalize import of_aten
from tests.proof_seeds.seeds import Function, seed

TABLE = CompositeTable("composites in half")
LARGE = torch.tensor([[70000.0, 1000.3, 3.0], [5.0, 1e5, 2.0]])
NEAR = torch.tensor([[-69000.0, -1000.2, 1.0], [2.0, -99000.0, 1.0]])
ROW = torch.tensor([[300.0, 280.0, 310.0, -300.0]], dtype=torch.float16)
TWO = {"x": "2x3xf32", "y": "2x3xf32"}
HALVES = {"x": "2x4xf16", "y": "2x4xf16"}


def _half(a: Any, x: Any) -> Any:
    return a._to_copy(x, dtype="f16")


def _wide(a: Any, x: Any) -> Any:
    return a._to_copy(x, dtype="f32")


def _sum(a: Any, x: Any, axis: Any) -> Any:
    return a.op("sum.dim_IntList", x, dim=[axis], keepdim=True, dtype=None)


def _mean(a: Any, x: Any, axis: Any) -> Any:
    return a.op("mean.dim", x, dim=[axis], keepdim=True, dtype=None)


# ---- float32 becomes float16 too early ---------------------------------------------------------------


@seed("70000 is infinite in float16, and 70000 - 69000 is not", Function(lambda x, y: (x + y).half(), [LARGE, NEAR]))
@of_aten(TWO)
def half_of_sum(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(x + y) -> half(x) + half(y)"
    where = [x.dtype == "f32", y.dtype == "f32"]
    return Rewrite(_half(a, x + y), to=c.add(_half(c, x), _half(c, y)), where=where)


@seed("the difference of two infinities is NaN", Function(lambda x, y: (x - y).half(), [LARGE, -NEAR]))
@of_aten(TWO)
def half_of_difference(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(x - y) -> half(x) - half(y)"
    where = [x.dtype == "f32", y.dtype == "f32"]
    return Rewrite(_half(a, x - y), to=c.sub(_half(c, x), _half(c, y)), where=where)


@seed(
    "a factor that is infinite or zero in float16 need not make the product so",
    Function(lambda x, y: (x * y).half(), [LARGE, torch.full((2, 3), 1e-5)]),
)
@of_aten(TWO)
def half_of_product(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(x * y) -> half(x) * half(y)"
    where = [x.dtype == "f32", y.dtype == "f32"]
    return Rewrite(_half(a, x * y), to=c.mul(_half(c, x), _half(c, y)), where=where)


@seed("the quotient of two infinities is NaN", Function(lambda x, y: (x / y).half(), [LARGE, LARGE * 2]))
@of_aten({"x": "2x3xf32", "y": "2x3xf32[1,5]"})
def half_of_quotient(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(x / y) -> half(x) / half(y)"
    where = [x.dtype == "f32", y.dtype == "f32"]
    return Rewrite(_half(a, x / y), to=c.div(_half(c, x), _half(c, y)), where=where)


@seed(
    "parts of a sum overflow that the sum does not",
    Function(lambda x: x.sum(0, keepdim=True).half(), [torch.tensor([[70000.0], [-69000.0]])]),
)
@of_aten({"x": "2x3xf32", "axis": 1})
def half_of_total(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "half(sum(x)) -> sum(half(x))"
    return Rewrite(_half(a, _sum(a, x, axis)), to=_sum(c, _half(c, x), axis), where=[x.dtype == "f32"])


@seed("a mean is small where its parts overflow", Function(lambda x: x.mean(1, keepdim=True).half(), [LARGE * 2]))
@of_aten({"x": "2x3xf32", "axis": 1})
def half_of_mean(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "half(mean(x)) -> mean(half(x))"
    return Rewrite(_half(a, _mean(a, x, axis)), to=_mean(c, _half(c, x), axis), where=[x.dtype == "f32"])


@seed("operands of a product overflow", Function(lambda x, y: torch.mm(x, y).half(), [LARGE, NEAR.T * 1e-6]))
@of_aten({"x": "2x3xf32", "y": "3x2xf32"})
def half_of_matrices(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(x @ y) -> half(x) @ half(y)"
    where = [x.dtype == "f32", y.dtype == "f32"]
    return Rewrite(_half(a, a.mm(x, y)), to=c.mm(_half(c, x), _half(c, y)), where=where)


@seed(
    "a cast to float16 and back is no identity: it rounds, and 70000 becomes infinite",
    Function(lambda x: x.half().float() * 2.0, [LARGE]),
)
@of_aten({"x": "2x3xf32"})
def round_trip_through_half(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "float(half(x)) -> x"
    return Rewrite(_wide(a, _half(a, x)), to=x, where=[x.dtype == "f32"])


@seed(
    "numbers that bfloat16 rounds to the same number differ",
    Function(lambda x, y: x.bfloat16() - y.bfloat16(), [torch.tensor([1000.0, 3.0]), torch.tensor([1001.0, 2.0])]),
)
@of_aten(TWO)
def difference_of_brief_floats(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "bfloat16(x) - bfloat16(y) -> bfloat16(x - y)"
    brief = a._to_copy(x, dtype="bf16") - a._to_copy(y, dtype="bf16")
    where = [x.dtype == "f32", y.dtype == "f32"]
    return Rewrite(brief, to=c._to_copy(c.sub(x, y), dtype="bf16"), where=where)


@seed(
    "numbers that are equal in float16 differ in float32",
    Function(lambda x, y: x.half() > y.half(), [torch.tensor([1000.4, 2.0]), torch.tensor([1000.3, 3.0])]),
)
@of_aten(TWO)
def comparison_before_rounding(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(x) > half(y) -> x > y"
    return Rewrite(a.gt(_half(a, x), _half(a, y)), to=c.gt(x, y), where=[x.dtype == "f32", y.dtype == "f32"])


# ---- arithmetic of float32 becomes arithmetic of float16 ----------------------------------------------


@seed("300 * 300 overflows in float16", Function(lambda x, y: x.float() * y.float(), [ROW, ROW.clone()]))
@of_aten(HALVES)
def wide_product_in_half(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "float(x) * float(y) -> float(x * y)"
    where = [x.dtype == "f16", y.dtype == "f16"]
    return Rewrite(_wide(a, x) * _wide(a, y), to=_wide(c, c.mul(x, y)), where=where)


@seed(
    "squares overflow under the root",
    Function(lambda x, y: (x.float() ** 2 + y.float() ** 2).sqrt().half(), [ROW, ROW.clone()]),
)
@of_aten(HALVES)
def length_in_half(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(sqrt(float(x)^2 + float(y)^2)) -> sqrt(x^2 + y^2)"
    length = a.sqrt(a.pow(_wide(a, x), 2.0) + a.pow(_wide(a, y), 2.0))
    to = c.sqrt(c.add(c.pow(x, 2.0), c.pow(y, 2.0)))
    return Rewrite(_half(a, length), to=to, where=[x.dtype == "f16", y.dtype == "f16"])


@seed("exp(20) overflows in float16", Function(lambda x: x.float().exp().log1p().half(), [ROW / 15]))
@of_aten({"x": "2x4xf16"})
def softplus_in_half(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "half(log1p(exp(float(x)))) -> log1p(exp(x))"
    return Rewrite(_half(a, a.log1p(a.exp(_wide(a, x)))), to=c.log1p(c.exp(x)), where=[x.dtype == "f16"])


def _unit_length(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide / wide.pow(2).sum(-1, keepdim=True).sqrt()).half()


def _deviation(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide - wide.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True).sqrt().half()


@TABLE.define
@composite("half_length_norm", inputs=("x",), attributes=())
def half_length_norm(c: Coreai, x: Value) -> Value:
    "x / sqrt(sum(x^2)), in the type of x"
    return c.broadcasting_divide(x, c.sqrt(c.reduce_sum(c.broadcasting_mul(x, x), [x.rank - 1])))


@seed(
    "the body squares in float16",
    Function(_unit_length, [ROW]),
)
@rule(into=TABLE, example={"x": "2x8xf16", "axis": 1})
def length_norm_in_half(a: AtenSource, c: Targets, x: Capture, axis: Attr) -> Rewrite:
    "half(x / sqrt(sum(x^2))) of float32"
    wide = _wide(a, x)
    root = a.sqrt(_sum(a, a.pow(wide, 2.0), axis))
    return Rewrite(_half(a, wide / root), to=c.half_length_norm(x), where=[x.dtype == "f16", axis == x.rank - 1])


@TABLE.define
@composite("half_deviation", inputs=("x",), attributes=())
def half_deviation(c: Coreai, x: Value) -> Value:
    "sqrt(mean((x - mean)^2)), in the type of x"
    centered = c.broadcasting_sub(x, c.reduce_mean(x, [x.rank - 1]))
    return c.sqrt(c.reduce_mean(c.broadcasting_mul(centered, centered), [x.rank - 1]))


@seed(
    "the body squares distances in float16",
    Function(_deviation, [ROW]),
)
@rule(into=TABLE, example={"x": "2x8xf16", "axis": 1})
def deviation_in_half(a: AtenSource, c: Targets, x: Capture, axis: Attr) -> Rewrite:
    "half(sqrt(mean((x - mean)^2))) of float32"
    wide = _wide(a, x)
    square = a.pow(wide - _mean(a, wide, axis), 2.0)
    root = _half(a, a.sqrt(_mean(a, square, axis)))
    return Rewrite(root, to=c.half_deviation(x), where=[x.dtype == "f16", axis == x.rank - 1])

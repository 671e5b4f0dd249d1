"""Wrong rules of the stage `normalize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from patcomp.authoring import Aten, AtenSource, AtenTarget, aten
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value
from patcomp.patterns import (
    Attr,
    Capture,
    Const,
    OpView,
    Rewrite,
    Rule,
    build,
    call,
    example,
    normalization,
    rule,
)
from tests.proof_seeds.seeds import Call, Function, seed

ROWS = torch.export.Dim("rows", min=3, max=64)
X = torch.arange(1.0, 7.0).view(2, 3)


def of_aten(example: Mapping[str, Any], **options: Any) -> Callable[[Callable[..., Rewrite]], Rule]:
    """Declare a normalization; arguments as for `rule`."""
    return rule(stage="normalize", example=example, **({"into": aten_namespace} | options))


# ---- declarative ---------------------------------------------------------------------------------


@seed(
    "the mean divides by the size of the reduced axis, which need not be the last one",
    Function(lambda x: x.mean(0, keepdim=True), [X]),
)
@of_aten({"x": "2x3xf32", "axis": 1})
def mean_by_last_size(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "mean(x, axis) -> sum(x, axis) / n"
    total = c.op("sum.dim_IntList", x, dim=[axis], keepdim=True, dtype=None)
    mean = a.op("mean.dim", x, dim=[axis], keepdim=True, dtype=None)
    return Rewrite(mean, to=c.div(total, x.shape[-1]), where=[x.dtype == "f32"])


def _mean_of_rows(x: Value, mean: Value) -> Value:
    return aten.mean.dim(mean.type, x, dim=[0], keepdim=True)


@seed(
    "where the size is unknown, the divisor may be any number beside it",
    Function(lambda x: x.sum(0, keepdim=True) / 4.0, [torch.arange(18.0).view(6, 3)], sizes=[{0: ROWS}]),
)
@of_aten({"x": "4x3xf32", "count": 4.0})
def mean_of_unknown_count(a: AtenSource, c: AtenTarget, x: Capture, count: Const) -> Rewrite:
    "sum(x, 0) / n -> mean(x, 0) where x has n rows, or n is not known to be wrong"
    total = a.op("sum.dim_IntList", x, dim=[0], keepdim=True, dtype=None)
    fits = ~x.is_static | (x.shape[0] == count.value)
    mean = total / count
    return Rewrite(mean, to=build(_mean_of_rows, x, mean), where=[count.rank == 0, x.dtype == "f32", fits])


@seed(
    "if the bounds cross, this order of the two gives the lower bound, and clamp gives the upper one",
    Function(lambda x: torch.maximum(torch.minimum(x, torch.tensor(1.0)), torch.tensor(2.0)), [X]),
)
@of_aten({"x": "2x3xf32", "low": -1.0, "high": 1.0})
def clamp_of_crossed_bounds(a: AtenSource, c: AtenTarget, x: Capture, low: Const, high: Const) -> Rewrite:
    "maximum(minimum(x, high), low) -> clamp(x, low, high)"
    y = a.maximum(a.minimum(x, high), low)
    numbers = [low.rank == 0, high.rank == 0, x.dtype == "f32", y.type == x.type]
    return Rewrite(y, to=c.clamp(x, min=low.value, max=high.value), where=numbers)


@seed(
    "the branches are exchanged: where x != y, the second one is taken",
    Function(lambda x: torch.where(x != x.flip(1), x, -x), [X]),
    right_on_example=False,
)
@of_aten({"x": "2x3xf32", "y": "2x3xf32", "p": "2x3xf32", "q": "2x3xf32"})
def equality_with_same_branches(
    a: AtenSource, c: AtenTarget, x: Capture, y: Capture, p: Capture, q: Capture
) -> Rewrite:
    "where(x != y, p, q) -> where(x == y, p, q)"
    z = a.op("where.self", a.ne(x, y), p, q)
    return Rewrite(z, to=c.op("where.self", c.eq(x, y), p, q), where=[x.type == y.type])


@seed(
    "no comparison holds for NaN, so that x >= y is not the opposite of x < y",
    Function(lambda x: x >= x.flip(1), [torch.tensor([[torch.nan, 1.0, 2.0]])]),
)
@of_aten({"x": "2x3xf32", "y": "2x3xf32"})
def at_least_as_not_less(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "x >= y -> not (x < y)"
    return Rewrite(a.ge(x, y), to=c.logical_not(c.lt(x, y)), where=[x.type == y.type])


def _repeated(x: Value, copies: Value, times: int) -> Value:
    return aten.repeat(copies.type, x, repeats=[times, *([1] * (x.rank - 1))])


@seed(
    "copies along a new axis 1 put each row beside its own copies; repeat puts whole copies of x one after the other",
    Function(lambda x: x.unsqueeze(1).expand(2, 4, 3).reshape(8, 3), [X]),
)
@of_aten({"x": "2x3xf32", "axis": 0, "size": [4, 2, 3], "s": [8, 3]})
def copies_along_any_axis(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr, size: Attr, s: Attr) -> Rewrite:
    "view(expand(unsqueeze(x, axis))) -> repeat(x, [n, 1, ...])"
    y = a.view(a.expand(a.unsqueeze(x, dim=axis), size=size, implicit=False), size=s)
    times = y.shape[0] // x.shape[0]
    return Rewrite(y, to=build(_repeated, x, y, times), where=[x.is_static, y.shape[1:] == x.shape[1:]])


def _has_pairs(shape: Shape, split: list[int], axis: int) -> bool:
    """Whether the last axis is split in two, and a selection takes one of two."""
    return list(shape[:-1]) == split[:-2] and axis % len(split) >= len(split) - 2 and split[axis] == 2


def _every_other(x: Value, part: Value, first: int) -> Value:
    return aten.slice.Tensor(part.type, x, dim=x.rank - 1, start=first, end=2**63 - 1, step=2)


@seed(
    "a view with the pair in front of the last axis has halves, not neighbours, and gives a result of the same shape",
    Function(lambda x: x.view(3, 2, 4).select(-2, 1), [torch.arange(24.0).view(3, 8)]),
)
@of_aten({"x": "3x8xf32", "s": [3, 4, 2], "dim": 2, "index": 1})
def neighbours_by_shape(a: AtenSource, c: AtenTarget, x: Capture, s: Attr, dim: Attr, index: Attr) -> Rewrite:
    "select(view(x, [..., n, 2]), -1, i) -> x[..., i::2]"
    y = a.op("select.int", a.view(x, size=s), dim=dim, index=index)
    pairs = call(_has_pairs, x.shape, s, dim)
    return Rewrite(y, to=build(_every_other, x, y, index), where=[x.is_static, pairs, index >= 0])


@seed(
    "a part of a dynamic dimension has the same type as the whole",
    Function(lambda x: x[1:] * 2.0, [torch.arange(18.0).view(6, 3)], sizes=[{0: ROWS}]),
)
@of_aten({"x": "4x3xf32", "dim": 0, "start": 0, "end": 9223372036854775807})
def slice_of_same_type(a: AtenSource, c: AtenTarget, x: Capture, dim: Attr, start: Attr, end: Attr) -> Rewrite:
    "a slice that keeps everything -> x"
    y = a.op("slice.Tensor", x, dim=dim, start=start, end=end, step=1)
    return Rewrite(y, to=x, where=[y.type == x.type])


# ---- procedural ----------------------------------------------------------------------------------


@seed(
    "fmod has the sign of the dividend, remainder that of the divisor",
    Call("aten.remainder.Tensor", [torch.tensor([-7, 7], dtype=torch.int32), torch.tensor([4, 4], dtype=torch.int32)]),
)
@normalization("aten.remainder.Tensor", name="remainder as fmod", examples=[example("9xsi32[0,9]", "9xsi32[1,4]")])
def remainder_as_fmod(op: OpView, aten: Aten) -> Value | None:
    "remainder(x, y) -> fmod(x, y) of tensors of one type"
    x, y = op["self"], op.other
    return aten.fmod.Tensor(op.result, x, y) if x.element_type == y.element_type else None


@seed(
    "a correction of 0 is no missing correction, which is 1",
    Call("aten.std.correction", [torch.arange(12.0).view(3, 4) ** 2, [1]], {"correction": 0, "keepdim": True}),
)
@normalization("aten.std.correction", name="std by a correction or 1", examples=[
    example("2x3x4xf32", [1], correction=1, keepdim=True),
])  # fmt: skip
def deviation_with_some_correction(op: OpView, aten: Aten) -> Value | None:
    "std(x) -> sqrt(var(x))"
    x = op["self"]
    if not op.dim or x.dtype != "f32":
        return None
    dims = sorted(dim % x.rank for dim in op.dim)
    variance = aten.var.correction(op.result, x, dim=dims, correction=op.correction or 1, keepdim=op.keepdim)
    return aten.sqrt(op.result, variance)


@seed(
    "the rule says that alpha is 1, and does not look",
    Call("aten.addmm", [torch.ones(2), X, torch.ones(3, 2)], {"alpha": 2}),
)
@normalization("aten.addmm", name="addmm as product and sum", examples=[example("5xf32", "2x3xf32", "3x5xf32")])
def addmm_without_alpha(op: OpView, aten: Aten) -> Value | None:
    "addmm(row, x, y) -> mm(x, y) + row"
    op.ignore("alpha", because="linear layers have 1")
    if op.beta != 1:
        return None
    x, y = op.mat1, op.mat2
    product = aten.mm(tensor(op.result.shape, x.element_type), x, y)
    return aten.add.Tensor(op.result, product, op["self"], alpha=1)

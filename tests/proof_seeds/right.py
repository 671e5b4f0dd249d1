"""40 right rules, near wrong ones: a proof must not refute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.authoring import Aten, AtenSource, AtenTarget, Coreai, CoreaiSource, CoreaiTarget, OpView, Targets
from patcomp.ir.composite import composite
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import (
    Attr,
    Capture,
    CompositeTable,
    Const,
    Rewrite,
    Rule,
    call,
    decomposition,
    example,
    lowering,
    normalization,
    rule,
)
from tests.proof_seeds.normalize import of_aten
from tests.proof_seeds.seeds import of_coreai

TABLE = CompositeTable("right composites")
ROWS, TWO = {"x": "2x3xf32"}, {"x": "2x3xf32", "y": "2x3xf32"}
HALVES = {"x": "2x4xf16", "y": "2x4xf16"}


def _half(a: Any, x: Any) -> Any:
    return a._to_copy(x, dtype="f16")


def _wide(a: Any, x: Any) -> Any:
    return a._to_copy(x, dtype="f32")


def _sum(a: Any, x: Any, axis: Any) -> Any:
    return a.op("sum.dim_IntList", x, dim=[axis], keepdim=True, dtype=None)


def _mean(a: Any, x: Any, axis: Any) -> Any:
    return a.op("mean.dim", x, dim=[axis], keepdim=True, dtype=None)


def _undoes(one: np.ndarray, other: np.ndarray) -> bool:
    return [*one[other]] == [*range(len(one))]


def _axis_before(permutation: np.ndarray, axis: int) -> int:
    return int(permutation[axis])


def _is_identity(permutation: list[int]) -> bool:
    return [axis % len(permutation) for axis in permutation] == [*range(len(permutation))]


# ---- half --------------------------------------------------------------------------------------------


@of_aten(ROWS)
def half_of_relu(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "half(relu(x)) -> relu(half(x))"
    return Rewrite(_half(a, a.relu(x)), to=c.relu(_half(c, x)), where=[x.dtype == "f32"])


@of_aten(ROWS)
def half_of_negative(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "half(-x) -> -half(x)"
    return Rewrite(_half(a, a.neg(x)), to=c.neg(_half(c, x)), where=[x.dtype == "f32"])


@of_aten({"x": "2x4xf16"})
def there_and_back(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "half(float(x)) -> x"
    return Rewrite(_half(a, _wide(a, x)), to=x, where=[x.dtype == "f16"])


@of_aten(HALVES)
def sum_in_half(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(float(x) + float(y)) -> x + y"
    total = _half(a, _wide(a, x) + _wide(a, y))
    return Rewrite(total, to=c.add(x, y), where=[x.dtype == "f16", y.dtype == "f16"])


@of_aten(HALVES)
def product_in_half(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "half(float(x) * float(y)) -> x * y"
    product = _half(a, _wide(a, x) * _wide(a, y))
    return Rewrite(product, to=c.mul(x, y), where=[x.dtype == "f16", y.dtype == "f16"])


@of_aten(HALVES)
def comparison_in_half(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "float(x) > float(y) -> x > y"
    return Rewrite(a.gt(_wide(a, x), _wide(a, y)), to=c.gt(x, y), where=[x.dtype == "f16", y.dtype == "f16"])


@of_aten({"x": "2x4xf16"})
def sigmoid_in_half(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "half(sigmoid(float(x))) -> sigmoid(x)"
    return Rewrite(_half(a, a.sigmoid(_wide(a, x))), to=c.sigmoid(x), where=[x.dtype == "f16"])


@TABLE.define
@composite("wide_rms", inputs=("x",), attributes=("eps",))
def wide_rms(c: Coreai, x: Value, *, eps: float) -> Value:
    "x * rsqrt(mean(x^2) + eps), in float32"
    wide = c.cast(x, "f32")
    mean = c.reduce_mean(c.broadcasting_mul(wide, wide), [x.rank - 1])
    return c.cast(c.broadcasting_mul(wide, c.rsqrt(c.broadcasting_add(mean, eps))), x.element_type)


@rule(into=TABLE, example={"x": "2x8xf16", "eps": 0.001, "axis": 1})
def norm_of_wide_squares(a: AtenSource, c: Targets, x: Capture, eps: Const, axis: Attr) -> Rewrite:
    "half(x * rsqrt(mean(x^2) + eps)) of float32"
    wide = _wide(a, x)
    root = a.rsqrt(_mean(a, wide * wide, axis) + eps)
    where = [x.dtype == "f16", axis % x.rank == x.rank - 1, eps.rank == 0]
    return Rewrite(_half(a, wide * root), to=c.wide_rms(x, eps=eps.value), where=where)


# ---- ties --------------------------------------------------------------------------------------------


@of_aten(TWO)
def at_most_turned_around(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "x <= y -> y >= x"
    return Rewrite(a.le(x, y), to=c.ge(y, x), where=[x.type == y.type])


@of_aten(TWO)
def less_turned_around(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "x < y -> y > x"
    return Rewrite(a.lt(x, y), to=c.gt(y, x), where=[x.type == y.type])


@of_aten({"x": "2x3xf32", "axis": 1})
def maximum_marked(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "x == amax(x) -> not x != amax(x)"
    to = c.logical_not(c.ne(x, c.amax(x, dim=[axis], keepdim=True)))
    return Rewrite(a.eq(x, a.amax(x, dim=[axis], keepdim=True)), to=to, where=[x.dtype == "f32"])


@lowering("aten.argmax", name="argmax of an axis", examples=[example("2x3xf32", 1)], unspecified={
    "NaN": "Core AI does not say where the maximum of NaN is",
})  # fmt: skip
def argmax_of_axis(op: OpView, c: Coreai) -> Value:
    "argmax(x, axis)"
    x = op["self"]
    op.ignore("keepdim", because="the result is reshaped")
    op.expect(op.dim is not None and x.rank > 0 and x.is_static, "the whole tensor")
    return c.reshape(c.cast(c.argmax(x, op.dim % x.rank), "si32"), op.result.static_shape)


@normalization("aten.argmax", name="argmax by a descending order", examples=[example("2x3xf32", 1)])
def argmax_by_descending_order(op: OpView, aten: Aten) -> Value | None:
    "argmax(x) -> the first place of a stable descending sort(x)"
    x = op["self"]
    if op.dim is None or op.keepdim or x.rank == 0:
        return None
    types = [x.type, tensor(x.shape, op.result.element_type)]
    _, places = aten.sort.stable(types, x, stable=True, dim=op.dim, descending=True)
    return aten.select.int(op.result, places, dim=op.dim, index=0)


@normalization("aten.sort.stable", name="any order as a stable one", examples=[example("2x3xf32", stable=False)])
def any_order_as_stable(op: OpView, aten: Aten) -> list[Value] | None:
    "sort(x) -> sort(x, stable)"
    x = op["self"]
    if op.stable or x.rank == 0:
        return None
    types = [x.type, tensor(x.shape, "si64")]
    return list(aten.sort.stable(types, x, stable=True, dim=op.dim, descending=op.descending))


@decomposition("aten.searchsorted.Tensor", name="places by counting smaller ones", examples=[
    example(torch.tensor([1.0, 2.0, 2.0, 5.0]), "3xf32"),
])  # fmt: skip
def places_by_counting_smaller_ones(
    sorted_sequence: Tensor, self: Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:  # fmt: skip
    "searchsorted(s, v) -> sum(not s >= v), or sum(not s > v) from the right"
    if sorter is not None or sorted_sequence.dim() != 1 or side is not None:
        return NotImplemented
    values = self.unsqueeze(-1)
    found = (~(sorted_sequence > values if right else sorted_sequence >= values)).sum(-1)
    return found.to(torch.int32) if out_int32 else found


@of_coreai("optimize", {**TWO, "p": "2x3xf32", "q": "2x3xf32"})
def branches_of_not(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, p: Capture, q: Capture) -> Rewrite:
    "where(not x > y, p, q) -> where(x > y, q, p)"
    z = a.broadcasting_where(a.not_(a.broadcasting_greater(x, y)), p, q)
    to = c.broadcasting_where(c.broadcasting_greater(x, y), q, p, result_type=z.type)
    return Rewrite(z, to=to, where=[x.type == y.type])


# ---- equal sizes -------------------------------------------------------------------------------------


@of_coreai("optimize", {"x": "2x3x4xf32", "p": [1, 2, 0], "q": [2, 0, 1]}, priority=9)
def transpose_undone(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), p^-1) -> x"
    y = a.transpose(a.transpose(x, p), q)
    return Rewrite(y, to=x, where=[call(_undoes, p.values, q.values), y.type == x.type])


@of_coreai("optimize", {"x": "2x3x4xf32", "p": [1, 2, 0], "q": [1, 0, 2]}, priority=9)
def transposes_composed(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), q) -> transpose(x, p[q])"
    y = a.transpose(a.transpose(x, p), q)
    return Rewrite(y, to=c.transpose(x, p.values[q.values], result_type=y.type))


@of_coreai("optimize", {"x": "2x3xf32", "p": [1, 0], "axis": 1}, priority=9)
def softmax_of_moved_axis(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, axis: Const) -> Rewrite:
    "softmax(transpose(x, p), axis) -> transpose(softmax(x, p[axis]), p)"
    y = a.softmax(a.transpose(x, p), axis)
    moved = c.transpose(c.softmax(x, call(_axis_before, p.values, axis.value)), p, result_type=y.type)
    return Rewrite(y, to=moved, where=[axis.rank == 0])


@of_coreai("optimize", {"x": "2x3x4xf32", "axes": [1]}, priority=9)
def reversed_three_times(a: CoreaiSource, c: CoreaiTarget, x: Capture, axes: Const) -> Rewrite:
    "reverse of reverse of reverse(x, axes) -> reverse(x, axes)"
    y = a.reverse(a.reverse(a.reverse(x, axes), axes), axes)
    return Rewrite(y, to=c.reverse(x, axes, result_type=y.type))


@of_aten({"x": "2x3xf32", "p": [1, 0]})
def permuted_around_relu(a: AtenSource, c: AtenTarget, x: Capture, p: Attr) -> Rewrite:
    "relu(permute(x, p)) -> permute(relu(x), p)"
    return Rewrite(a.relu(a.permute(x, dims=p)), to=c.permute(c.relu(x), dims=p))


@of_aten({"x": "2x3xf32", "p": [0, 1], "axis": 0})
def sum_of_axis_in_place(a: AtenSource, c: AtenTarget, x: Capture, p: Attr, axis: Attr) -> Rewrite:
    "sum(permute(x, p), axis) -> sum(x, axis) where p leaves all axes in their places"
    y = a.op("sum.dim_IntList", a.permute(x, dims=p), dim=[axis], keepdim=False, dtype=None)
    to = c.op("sum.dim_IntList", x, dim=[axis], keepdim=False, dtype=None)
    return Rewrite(y, to=to, where=[call(_is_identity, p)])


# ---- open sizes --------------------------------------------------------------------------------------


@of_coreai("optimize", {"x": "2x3xf32", "shape": [2, 3]})
def reshaped_to_known_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, shape: Capture) -> Rewrite:
    "reshape(x, shape) -> x where the types are equal and static"
    y = a.reshape(x, shape)
    return Rewrite(y, to=x, where=[y.type == x.type, x.is_static])


@of_coreai("optimize", ROWS)
def reshaped_to_its_own_shape(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "reshape(x, shape of x) -> x"
    y = a.reshape(x, a.get_shape(x))
    return Rewrite(y, to=x, where=[y.type == x.type])


@of_coreai("optimize", TWO)
def shape_of_known_sum(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "shape of x + y -> shape of x where the types are equal and static"
    z = x + y
    known = [z.type == x.type, x.is_static]
    return Rewrite(a.get_shape(a.escaping(z)), to=c.get_shape(x), where=known)


@of_coreai("optimize", {"x": "2x3xf32", "s": [6], "t": [3, 2]})
def second_reshape(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture, t: Capture) -> Rewrite:
    "reshape(reshape(x, s), t) -> reshape(x, t)"
    y = a.reshape(a.reshape(x, s), t)
    return Rewrite(y, to=c.reshape(x, t, result_type=y.type))


# ---- options -----------------------------------------------------------------------------------------


@normalization("aten.div.Tensor_mode", name="quotient of each mode", examples=[
    example("2x3xf32", "2x3xf32[1,4]", rounding_mode="trunc"), example("2x3xf32", "2x3xf32[1,4]", rounding_mode=None),
])  # fmt: skip
def quotient_of_each_mode(op: OpView, aten: Aten) -> Value | None:
    "div(x, y, mode) -> x / y, or trunc(x / y)"
    if op.rounding_mode == "floor" or not op["self"].dtype == "f32" == op.other.dtype:
        return None
    quotient = aten.div.Tensor(op.result, op["self"], op.other)
    return aten.trunc(op.result, quotient) if op.rounding_mode == "trunc" else quotient


@decomposition("aten.mse_loss", name="squares of each reduction", examples=[example("2x3xf32", "2x3xf32")])
def squares_of_each_reduction(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    "mse_loss(x, y) -> (x - y)^2, its mean, or its sum"
    squares = (self - target) ** 2
    return (squares, squares.mean(), squares.sum())[reduction] if reduction else squares


@decomposition("aten.huber_loss", name="distances of each reduction", examples=[example("2x3xf32", "2x3xf32", 2)])
def distances_of_each_reduction(self: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    "huber_loss(x, y) -> a square near 0, and a line further away; or its mean or sum"
    apart = (self - target).abs()
    losses = torch.where(apart <= delta, apart * apart * 0.5, delta * (apart - delta * 0.5))
    return (losses, losses.mean(), losses.sum())[reduction] if reduction else losses


@decomposition("aten.smooth_l1_loss", name="smooth distances", examples=[example("2x3xf32", "2x3xf32")])
def smooth_distances(self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    "smooth_l1_loss(x, y) -> a square near 0, and a line further away; or its mean or sum"
    apart = (self - target).abs()
    losses = torch.where(apart < beta, apart * apart * 0.5 / beta, apart - beta * 0.5) if beta else apart
    return (losses, losses.mean(), losses.sum())[reduction] if reduction else losses


@of_coreai("optimize", {"x": "2x3xf32", "word": "none", "shape": [3, 2]}, priority=9)
def gelu_of_a_reshape(a: CoreaiSource, c: CoreaiTarget, x: Capture, word: Attr, shape: Capture) -> Rewrite:
    "gelu(reshape(x), any word) -> reshape(gelu(x, the same word))"
    y = a.gelu(a.reshape(x, shape), word)
    return Rewrite(y, to=c.reshape(c.gelu(x, word), shape, result_type=y.type), where=[x.is_static])


# ---- softmax and norms -------------------------------------------------------------------------------


@of_aten({"x": "2x3xf32", "axis": 1})
def softmax_of_shifted_row(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "softmax(x) -> softmax(x - amax(x))"
    y = a.op("_softmax", x, dim=axis, half_to_float=False)
    shifted = c.exp(c.sub(x, c.amax(x, dim=[axis], keepdim=True)))
    return Rewrite(y, to=c.div(shifted, _sum(c, shifted, axis)), where=[x.dtype == "f32"])


@of_aten({"x": "2x8xf32", "axis": 1})
def norm_by_quotient(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "x * rsqrt(mean(x^2) + 1e-6) -> x / sqrt(mean(x^2) + 1e-6)"
    root = a.rsqrt(_mean(a, x * x, axis) + 1e-6)
    to = c.div(x, c.sqrt(c.add(_mean(c, c.mul(x, x), axis), 1e-6)))
    return Rewrite(x * root, to=to, where=[x.dtype == "f32"])


@of_aten({"x": "2x8xf32", "axis": 1})
def mean_by_sum(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "mean(x) -> sum(x) / n"
    return Rewrite(_mean(a, x, axis), to=c.div(_sum(c, x, axis), x.shape[axis]), where=[x.dtype == "f32", x.is_static])


@of_aten({"x": "2x8xf32"})
def sigmoid_by_exponential(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "sigmoid(x) -> 1 / (1 + exp(-x))"
    to = c.reciprocal(c.add(c.exp(c.neg(x)), 1.0))
    return Rewrite(a.sigmoid(x), to=to, where=[x.dtype == "f32"])


@of_aten({"x": "2x8xf32"})
def silu_written_out(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "silu(x) -> x * sigmoid(x)"
    return Rewrite(a.silu(x), to=c.mul(x, c.sigmoid(x)), where=[x.dtype == "f32"])


@of_coreai("optimize", ROWS)
def doubled_and_halved(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x * 1 -> x"
    return Rewrite(x * 1.0, to=x, where=[x.dtype == "f32"])


@of_coreai("optimize", {"x": "2x3xf32", "y": "2x3xf32", "axis": 1})
def softmax_of_exchanged_sum(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, axis: Const) -> Rewrite:
    "softmax(x + (-y)) -> softmax(x - y)"
    z = a.softmax(x + y * -1.0, axis)
    return Rewrite(z, to=c.softmax(c.broadcasting_sub(x, y), axis, result_type=z.type), where=[x.type == y.type])


@of_coreai("optimize", {"x": "2x3xf32", "axis": 1})
def softmax_of_a_product_with_one(a: CoreaiSource, c: CoreaiTarget, x: Capture, axis: Const) -> Rewrite:
    "softmax(x / 1) -> softmax(x)"
    y = a.softmax(x / 1.0, axis)
    return Rewrite(y, to=c.softmax(x, axis), where=[y.type == x.type])


@of_coreai("optimize", {"x": "2x3xf32", "y": "2x3xf32"})
def larger_of_two(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "-(-x) + y -> y + x"
    z = (x * -1.0) * -1.0 + y
    return Rewrite(z, to=c.broadcasting_add(y, x, result_type=z.type), where=[x.type == y.type, x.dtype == "f32"])


RIGHT: dict[str, Rule] = {value.name: value for value in list(globals().values()) if isinstance(value, Rule)}
"""The right rules by name."""

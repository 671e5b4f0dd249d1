"""Wrong rules of the stage `recover`: composites whose body is not what the rule matches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from patcomp.authoring import AtenSource, Coreai, Targets
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, CompositeTable, Const, Rewrite, Rule, rule
from tests.proof_seeds.seeds import Call, Function, seed

TABLE = CompositeTable("wrong composites")
X = torch.arange(1.0, 25.0).view(2, 3, 4) / 8
W, B = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.5, -1.0, 2.0, 0.0])
HALF = torch.tensor(0.5)


def recovering(example: Mapping[str, Any]) -> Callable[[Callable[..., Rewrite]], Rule]:
    return rule(into=TABLE, example=example)


def _unit(c: Coreai, x: Value, eps: float) -> Value:
    """x * rsqrt(mean x^2 + eps), over the last axis."""
    mean = c.reduce_mean(c.broadcasting_mul(x, x), [x.rank - 1])
    return c.broadcasting_mul(x, c.rsqrt(c.broadcasting_add(mean, eps)))


@TABLE.define
@composite("unit_norm", inputs=("x",), attributes=("eps",))
def unit_norm(c: Coreai, x: Value, *, eps: float) -> Value:
    "x * rsqrt(mean x^2 + eps)"
    return _unit(c, x, eps)


@seed(
    "eps is outside of the root in the matched ops, and inside in the composite",
    Function(lambda x: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.5), [X]),
)
@recovering({"x": "2x3x8xf32", "eps": 1e-9, "axis": 2})
def eps_outside_of_the_root(a: AtenSource, c: Targets, x: Capture, eps: Const, axis: Attr) -> Rewrite:
    "x / (sqrt(mean x^2) + eps)"
    root = a.sqrt(a.op("mean.dim", a.pow(x, 2.0), dim=[axis], keepdim=True, dtype=None))
    where = [axis == x.rank - 1, x.dtype == "f32", eps.rank == 0]
    return Rewrite(x / (root + eps), to=c.unit_norm(x, eps=eps.value), where=where)


@TABLE.define
@composite("affine_norm", inputs=("x", "w", "b"), attributes=("eps",))
def affine_norm(c: Coreai, x: Value, w: Value, b: Value, *, eps: float) -> Value:
    "x * rsqrt(mean x^2 + eps) * w + b"
    return c.broadcasting_add(c.broadcasting_mul(_unit(c, x, eps), w), b)


@seed(
    "the weight is read twice: the target has w in the place of b",
    Function(lambda x, w, b: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 0.5) * w + b, [X, W, B]),
    right_on_example=False,
)
@recovering({"x": "2x3x8xf32", "w": "8xf32", "b": "8xf32", "eps": 1e-5, "axis": 2})
def weight_read_twice(a: AtenSource, c: Targets, x: Capture, w: Capture, b: Capture, eps: Const, axis: Attr) -> Rewrite:
    "x * rsqrt(mean x^2 + eps) * w + b"
    mean = a.op("mean.dim", a.pow(x, 2.0), dim=[axis], keepdim=True, dtype=None)
    rows = [w.rank == 1, b.rank == 1, w.shape[0] == x.shape[-1], b.shape[0] == x.shape[-1]]
    where = [axis == x.rank - 1, x.dtype == "f32", eps.rank == 0, *rows]
    return Rewrite(x * a.rsqrt(mean + eps) * w + b, to=c.affine_norm(x, w, w, eps=eps.value), where=where)


@TABLE.define
@composite("centered_norm", inputs=("x",), attributes=("eps",))
def centered_norm(c: Coreai, x: Value, *, eps: float) -> Value:
    "(x - mean) * rsqrt(mean (x - mean)^2 + eps)"
    return _unit(c, c.broadcasting_sub(x, c.reduce_mean(x, [x.rank - 1])), eps)


@seed(
    "the variance of the composite divides by n, that of the matched ops by n - correction",
    Function(lambda x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 0.5), [X]),
)
@recovering({"x": "2x3x8xf32", "eps": 1e-5, "axis": 2, "correction": 0})
def norm_of_any_correction(a: AtenSource, c: Targets, x: Capture, eps: Const, axis: Attr, correction: Attr) -> Rewrite:
    "(x - mean) * rsqrt(var + eps)"
    mean = a.op("mean.dim", x, dim=[axis], keepdim=True, dtype=None)
    variance = a.op("var.correction", x, dim=[axis], correction=correction, keepdim=True)
    where = [axis == x.rank - 1, x.dtype == "f32", eps.rank == 0]
    return Rewrite((x - mean) * a.rsqrt(variance + eps), to=c.centered_norm(x, eps=eps.value), where=where)


@TABLE.define
@composite("tanh_gelu", inputs=("x",))
def tanh_gelu(c: Coreai, x: Value) -> Value:
    "gelu in the form of tanh"
    return c.gelu(x, "tanh")


@seed(
    "the matched ops are the exact gelu, the composite has the form of tanh",
    Function(lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))), [X]),
    right_on_example=False,
)
@recovering({"x": "2x3xf32", "root": 1.4142135381698608})
def exact_gelu_as_tanh(a: AtenSource, c: Targets, x: Capture, root: Const) -> Rewrite:
    "x * 0.5 * (1 + erf(x / sqrt(2)))"
    curve = a.erf(x / root) + 1.0
    where = [x.dtype == "f32", root.rank == 0, root.value > 1.41421, root.value < 1.41422]
    return Rewrite(x * 0.5 * curve, to=c.tanh_gelu(x), where=where)


@TABLE.define
@composite("upper_part", inputs=("x",), attributes=("diagonal",))
def upper_part(c: Coreai, x: Value, *, diagonal: int) -> Value:
    "x above a diagonal, 0 elsewhere"
    rows, columns = np.indices(x.static_shape[-2:])
    return c.broadcasting_where(c.constant(columns - rows > diagonal, "i1"), x, 0.0)


@seed(
    "triu keeps the diagonal itself, the mask of the composite does not",
    Call("aten.triu", [X, 1]),
    right_on_example=False,
)
@recovering({"x": "2x4x4xf32", "diagonal": 1})
def mask_above_the_diagonal(a: AtenSource, c: Targets, x: Capture, diagonal: Attr) -> Rewrite:
    "triu(x, diagonal)"
    y = a.triu(x, diagonal=diagonal)
    return Rewrite(y, to=c.upper_part(x, diagonal=diagonal), where=[x.dtype == "f32", x.is_static, x.rank >= 2])


@TABLE.define
@composite("scaled_product", inputs=("x", "y"), attributes=("scale",))
def scaled_product(c: Coreai, x: Value, y: Value, *, scale: float) -> Value:
    "(x @ y) * scale"
    return c.broadcasting_mul(c.broadcasting_batch_matmul(x, y), scale)


@seed(
    "both operands are scaled, so that the product is scaled by the square",
    Function(lambda x, y: torch.mm(x * HALF, y * HALF), [X[0], X[1].t().contiguous()]),
)
@recovering({"x": "3x4xf32", "y": "4x5xf32", "scale": 1.0})
def scale_of_both_operands(a: AtenSource, c: Targets, x: Capture, y: Capture, scale: Const) -> Rewrite:
    "(x * scale) @ (y * scale)"
    where = [x.dtype == "f32", y.dtype == "f32", scale.rank == 0]
    return Rewrite(a.mm(x * scale, y * scale), to=c.scaled_product(x, y, scale=scale.value), where=where)


@TABLE.define
@composite("divided_by_norm", inputs=("x",), attributes=("eps",))
def divided_by_norm(c: Coreai, x: Value, *, eps: float) -> Value:
    "x / (sqrt(sum x^2) + eps)"
    norm = c.sqrt(c.reduce_sum(c.broadcasting_mul(x, x), [x.rank - 1]))
    return c.broadcasting_divide(x, c.broadcasting_add(norm, eps))


@seed(
    "the matched ops take the larger of norm and eps, the composite adds eps",
    Function(lambda x: x / torch.maximum(x.pow(2).sum(-1, keepdim=True).sqrt(), torch.tensor(0.5)), [X]),
)
@recovering({"x": "2x3x8xf32", "eps": 1e-12, "axis": 2})
def eps_added_to_the_norm(a: AtenSource, c: Targets, x: Capture, eps: Const, axis: Attr) -> Rewrite:
    "x / max(sqrt(sum x^2), eps)"
    norm = a.sqrt(a.op("sum.dim_IntList", a.pow(x, 2.0), dim=[axis], keepdim=True, dtype=None))
    where = [axis == x.rank - 1, x.dtype == "f32", eps.rank == 0]
    return Rewrite(x / a.maximum(norm, eps), to=c.divided_by_norm(x, eps=eps.value), where=where)


@TABLE.define
@composite("rotate_neighbours", inputs=("x",))
def rotate_neighbours(c: Coreai, x: Value) -> Value:
    "[-x1, x0, -x3, x2, ...] of a matrix"
    rows, size = x.static_shape
    pairs = c.reshape(x, [rows, size // 2, 2])
    first, second = (c.slice_(pairs, [0, 0, i], [rows, size // 2, i + 1], [1, 1, 1]) for i in (0, 1))
    return c.reshape(c.concat(2, [c.broadcasting_mul(second, -1.0), first]), [rows, size])


@seed(
    "the matched ops rotate halves, the composite rotates neighbours; both are the same for rows of two",
    Function(lambda x: torch.cat([-x[:, 2:], x[:, :2]], 1), [X[0]]),
)
@recovering({"x": "3x2xf32", "half": 1, "end": 2**63 - 1})
def halves_as_neighbours(a: AtenSource, c: Targets, x: Capture, half: Attr, end: Attr) -> Rewrite:
    "cat([-x[:, n/2:], x[:, :n/2]])"
    second = a.op("slice.Tensor", x, dim=1, start=half, end=end, step=1)
    first = a.op("slice.Tensor", x, dim=1, start=0, end=half, step=1)
    where = [x.rank == 2, x.is_static, x.shape[1] == half * 2, end >= half * 2, x.dtype == "f32"]
    return Rewrite(a.cat([a.neg(second), first], dim=1), to=c.rotate_neighbours(x), where=where)

"""Norms of vectors as a composite."""

from __future__ import annotations

import math

from patcomp.authoring import AtenSource, Composites, Coreai
from patcomp.ir.composite import composite
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, OpView, Rewrite, any_of, check, composites, example, op_rule, rule, tag
from patterns_catalog.recover.normalization import compute_type


@composites.define
@composite("linalg_vector_norm", inputs=("input",), attributes=("ord", "axes", "keep_dim"))
def linalg_vector_norm(c: Coreai, x: Value, *, ord: int | float, axes: list[int], keep_dim: bool) -> Value:
    "sum(|x| ** ord) ** (1 / ord); the largest or smallest |x| for infinite ord, the number of nonzero x for 0"
    wide = c.cast(x, compute_type(x))
    dims = sorted(axis % x.rank for axis in axes)
    if ord == 0:
        norm = c.reduce_sum(c.cast(c.broadcasting_not_equal(wide, 0.0), wide.element_type), dims)
    elif ord == 1:
        norm = c.reduce_sum(c.abs_(wide), dims)
    elif ord == 2:
        norm = c.sqrt(c.reduce_sum(c.broadcasting_mul(wide, wide), dims))
    elif math.isinf(ord):
        norm = (c.reduce_max if ord > 0 else c.reduce_min)(c.abs_(wide), dims)
    else:
        powers = c.broadcasting_pow(c.abs_(wide), float(ord))
        norm = c.broadcasting_pow(c.reduce_sum(powers, dims), 1.0 / ord)
    norm = c.cast(norm, x.element_type)
    return norm if keep_dim else c.shrink_dims(norm, dims)


@op_rule("recover", "aten.linalg_vector_norm", name="linalg_vector_norm", examples=[
    example("2x3x4xf32", 2.0, [-1], True), example("2x3xf32", 2), example("2x3xf32", 1, [0]),
    example("2x3xf32", 0, [1]), example("2x3xf32", 3, [-1, 0]), example("2x3xf32[0.5,2]", -1.5, [1]),
    example("2x3xf32", math.inf, [1]), example("2x3xf32", -math.inf, [1]), example("f32", 2.0),
    example("2x3xf16", 2.0, [1], dtype="f32"),
])  # fmt: skip
def aten_vector_norm(op: OpView, c: Coreai) -> Value:
    """sum(|x| ** ord) ** (1 / ord); order and axes are declared as PyTorch has them"""
    op.ignore("dtype", because="the result type has it")
    x = op["self"]
    op.expect(is_float(x.element_type), "the composite is a vector norm of real numbers")
    x = c.cast(x, op.result.element_type)
    if x.rank == 0:
        op.ignore("dim", "keepdim", because="a 0-d tensor has one value")
        return linalg_vector_norm(c.reshape(x, [1]), ord=op.ord, axes=[0], keep_dim=False)
    axes = list(op.dim) if op.dim else list(range(x.rank))
    return linalg_vector_norm(x, ord=op.ord, axes=axes, keep_dim=op.keepdim)


@rule(name="linalg_vector_norm written out", example={"x": "2x3x4xf32", "axes": [1], "keepdim": True})
def recovered_vector_norm(a: AtenSource, c: Composites, x: Capture, axes: Attr, keepdim: Attr) -> Rewrite:
    "sqrt(sum(x ** 2)), sum(abs(x)), max(abs(x)) or min(abs(x)) over axes, in float32 (CLIP)"
    square = a.op("sum.dim_IntList", any_of(x * x, a.pow(x, 2.0)), dim=axes, keepdim=keepdim, dtype=None)
    size = a.abs(x)
    norm = any_of(
        a.sqrt(square),
        a.pow(square, 0.5),
        a.op("sum.dim_IntList", size, dim=axes, keepdim=keepdim, dtype=None),
        a.amax(size, dim=axes, keepdim=keepdim),
        a.amin(size, dim=axes, keepdim=keepdim),
        tag="order",
        tags=(2.0, 2.0, 1.0, math.inf, -math.inf),
    )
    return Rewrite(
        norm,
        to=c.linalg_vector_norm(x, ord=tag("order"), axes=axes, keep_dim=keepdim),
        where=[x.dtype == "f32", check("there are axes", lambda match: len(match["axes"]) > 0)],
    )

"""Variances."""

from __future__ import annotations

import math

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.norms import compute_type
from patterns_catalog.lower.reductions import axes_of, reduce
from patterns_catalog.sizes import product, size_of


@lowering("aten.var.correction", examples=[
    example("2x3x4xf32", [1]), example("2x3x4xf32", [-1, 0], correction=0, keepdim=True), example("2x3xf32"),
    example("2x3xf32", [1], correction=1.5), example("2x3xf16", [1], correction=5), example("f32", correction=0),
    example("2x0xf32", [1]),
])  # fmt: skip
def variance(op: OpView, c: Coreai) -> Value:
    """sum((x - mean) ** 2) / max(count - correction, 0), NaN of nothing; in float32 for half precision."""
    x = op["self"]
    op.expect(is_float(x.element_type), "a variance of non-float elements is not supported here")
    correction = 1 if op.correction is None else op.correction
    wide = c.cast(x, compute_type(x))
    axes = axes_of(op.dim, x.rank)
    centered = c.broadcasting_sub(wide, reduce(c, c.reduce_mean, wide, op.dim, True, of_nothing=math.nan))
    square = c.broadcasting_mul(centered, centered)
    if correction == 0:
        mean = reduce(c, c.reduce_mean, square, op.dim, op.keepdim, of_nothing=math.nan)
        return c.cast(mean, x.element_type)
    count = product(c, [size_of(c, x, axis) for axis in axes])
    if isinstance(count, int):
        degrees = c.constant(float(max(count - correction, 0)), wide.element_type)
    else:
        corrected = c.broadcasting_sub(c.cast(count, wide.element_type), float(correction))
        degrees = c.broadcasting_maximum(corrected, 0.0)
    total = reduce(c, c.reduce_sum, square, op.dim, op.keepdim, of_nothing=math.nan)
    return c.cast(c.broadcasting_divide(total, degrees), x.element_type)

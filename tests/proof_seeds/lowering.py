"""Wrong rules of the stage `lower`."""

from __future__ import annotations

import math

import numpy as np
import torch

from patcomp.authoring import Coreai, OpView
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import example, lowering
from patterns_catalog.lower.reductions import axes_of, reduce
from patterns_catalog.slices import slice_axis
from tests.proof_seeds.seeds import Call, Function, seed

ROWS = torch.export.Dim("rows", min=3, max=64)
X = torch.arange(1.0, 13.0).view(3, 4)


def _mean(c: Coreai, x: Value, op: OpView, count: float) -> Value:
    """The sum over the axes of an op, divided by a number."""
    return c.broadcasting_divide(reduce(c, c.reduce_sum, x, op.dim, op.keepdim), count)


# ---- reductions ----------------------------------------------------------------------------------


@seed(
    "the variance divides by the size of the last axis less 1, whatever the axis",
    Call("aten.var.correction", [X**2, [0]], {"correction": 1}),
)
@lowering("aten.var.correction", name="var by rows", examples=[example("3x4xf32", [1], correction=1)])
def variance_by_last_size(op: OpView, c: Coreai) -> Value:
    "sum((x - mean)^2) / (n - 1) over one axis"
    x = op["self"]
    op.expect(x.dtype == "f32" and x.is_static and x.rank > 0, "other numbers, or dynamic sizes")
    op.expect(bool(op.dim) and len(op.dim) == 1 and op.correction == 1, "another correction, or several axes")
    centered = c.broadcasting_sub(x, c.reduce_mean(x, [op.dim[0] % x.rank]))
    return _mean(c, c.broadcasting_mul(centered, centered), op, float(x.static_shape[-1] - 1))


@seed(
    "the product of the known sizes is the number of elements only if none is dynamic",
    Function(lambda x: x.mean((0, 1)), [torch.arange(24.0).view(6, 4)], sizes=[{0: ROWS}]),
)
@lowering("aten.mean.dim", name="mean by known sizes", examples=[example("3x4xf32", [0, 1])])
def mean_by_known_sizes(op: OpView, c: Coreai) -> Value:
    "sum(x) / n"
    x = op["self"]
    op.expect(x.dtype == "f32" and op.dtype is None and x.rank > 0, "other numbers")
    return _mean(c, x, op, float(math.prod(x.shape[axis] or 1 for axis in axes_of(op.dim, x.rank))))


@seed(
    "the mean of squares over a dynamic axis ignores the correction",
    Function(lambda x: x.var(0), [torch.arange(24.0).view(6, 4) ** 2], sizes=[{0: ROWS}]),
)
@lowering("aten.var.correction", name="var of dynamic sizes", examples=[example("3x4xf32", [0], correction=1)])
def variance_of_dynamic_size(op: OpView, c: Coreai) -> Value:
    "mean((x - mean)^2) * n / (n - correction), without the factor if n is not known"
    x = op["self"]
    op.expect(x.dtype == "f32" and x.rank > 0 and op.correction is not None, "other numbers")
    axes = axes_of(op.dim, x.rank)
    centered = c.broadcasting_sub(x, c.reduce_mean(x, axes))
    mean = reduce(c, c.reduce_mean, c.broadcasting_mul(centered, centered), op.dim, op.keepdim)
    sizes = [x.shape[axis] for axis in axes]
    if None in sizes:
        return mean
    count = math.prod(size for size in sizes if size is not None)
    op.expect(count > op.correction, "there is nothing to divide by")
    return c.broadcasting_mul(mean, count / (count - op.correction))


# ---- element by element --------------------------------------------------------------------------


@seed(
    "the mode is ignored, and trunc rounds a negative quotient up",
    Call(
        "aten.div.Tensor_mode",
        [torch.tensor([-7, 7], dtype=torch.int32), torch.tensor([4, 4], dtype=torch.int32)],
        {"rounding_mode": "trunc"},
    ),
)
@lowering("aten.div.Tensor_mode", name="rounded quotient", examples=[
    example("9xsi32[-9,9]", "9xsi32[1,4]", rounding_mode="floor"),
    example("9xsi32[0,9]", "9xsi32[1,4]", rounding_mode="trunc"),
])  # fmt: skip
def rounded_quotient(op: OpView, c: Coreai) -> Value:
    "floor_divide(x, y) of integers"
    x, y = op["self"], op.other
    op.ignore("rounding_mode", because="integers have one quotient")
    op.expect(x.dtype == "si32" and y.dtype == "si32", "other numbers")
    return c.broadcasting_floor_divide(x, y)


@seed(
    "the comparison is false if x is NaN and takes y",
    Call("aten.maximum", [torch.tensor([torch.nan, 1.0]), torch.tensor([0.0, 2.0])]),
)
@lowering("aten.maximum", name="maximum by comparison", examples=[example("2x3xf32", "2x3xf32")])
def maximum_by_comparison(op: OpView, c: Coreai) -> Value:
    "where(x > y, x, y)"
    x, y = op["self"], op.other
    op.expect(x.dtype == "f32" == y.dtype, "other numbers")
    return c.broadcasting_where(c.broadcasting_greater(x, y), x, y)


@seed(
    "a cast to integers cuts the fraction off, which rounds negative numbers up, and it loses large numbers",
    Call("aten.floor", [torch.tensor([-1.5, 2.5])]),
)
@lowering("aten.floor", name="floor by a cast", examples=[example("2x9xf32[0,4]")])
def floor_by_cast(op: OpView, c: Coreai) -> Value:
    "the float of the integer of x"
    x = op["self"]
    op.expect(x.dtype == "f32", "other numbers")
    return c.cast(c.cast(x, "si32"), "f32")


@seed(
    "PyTorch replaces x where it is not greater than the threshold, also where it equals it",
    Call("aten.threshold", [torch.tensor([0.0, 1.0, 2.0]), 1.0, 9.0]),
)
@lowering("aten.threshold", name="threshold by comparison", examples=[example("2x9xf32", 0.5, 9.0)])
def threshold_by_comparison(op: OpView, c: Coreai) -> Value:
    "where(threshold > x, value, x)"
    x = op["self"]
    op.expect(is_float(x.element_type), "other numbers")
    return c.broadcasting_where(c.broadcasting_greater(op.threshold, x), op.value, x)


# ---- positions -----------------------------------------------------------------------------------


@seed("tril keeps the diagonal itself", Call("aten.tril", [X]), right_on_example=False)
@lowering("aten.tril", name="tril by positions", examples=[example("4x4xf32")])
def lower_part(op: OpView, c: Coreai) -> Value:
    "where(column < row + diagonal, x, 0)"
    x = op["self"]
    op.expect(x.dtype == "f32" and x.is_static and x.rank >= 2, "other numbers, or dynamic sizes")
    rows, columns = np.indices(x.static_shape[-2:])
    return c.broadcasting_where(c.constant(columns < rows + op.diagonal, "i1"), x, 0.0)


@seed("the rows move in the other direction, which is the same for half of the size", Call("aten.roll", [X, [1], [1]]))
@lowering("aten.roll", name="roll of one axis", examples=[example("3x4xf32", [2], [1])])
def rolled(op: OpView, c: Coreai) -> Value:
    "concat(x[shift:], x[:shift])"
    x = op["self"]
    op.expect(len(op.shifts) == 1 == len(op.dims) and x.is_static and 0 not in x.shape, "several axes, or none")
    axis = op.dims[0] % x.rank
    size = x.static_shape[axis]
    first = op.shifts[0] % size
    if first == 0:
        return x
    return c.concat(axis, [slice_axis(c, x, axis, first, size), slice_axis(c, x, axis, 0, first)])


@seed(
    "whole copies come one after the other, as repeat puts them; repeat_interleave puts each row beside its copies",
    Call("aten.repeat_interleave.self_int", [X, 2, 1]),
)
@lowering("aten.repeat_interleave.self_int", name="repeat_interleave by concat", examples=[example("3x1xf32", 2, 1)])
def repeated_one_after_the_other(op: OpView, c: Coreai) -> Value:
    "concat([x, x, ...], axis)"
    x = op["self"]
    op.ignore("output_size", because="the result has it")
    op.expect(op.dim is not None and x.rank > 0 and op.repeats > 0, "no axis, or no elements")
    return c.concat(op.dim % x.rank, [x] * op.repeats)


@seed(
    "the pairs of amounts begin with the last axis, and the rule gives the first pair to the first axis",
    Call("aten.constant_pad_nd", [X, [1, 0, 0, 1], 0.0]),
)
@lowering("aten.constant_pad_nd", name="pad by axes", examples=[example("2x3xf32", [1, 1, 1, 1], 0.5)])
def padded(op: OpView, c: Coreai) -> Value:
    "pad(x, amounts)"
    x, amounts = op["self"], op.pad
    op.expect(x.dtype == "f32" and len(amounts) == 2 * x.rank and min(amounts) >= 0, "some axes, or negative amounts")
    return c.pad(x, amounts, op.value, "constant")

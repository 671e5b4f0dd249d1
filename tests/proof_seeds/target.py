"""Wrong rules of the stage `target`. Such a rule may change the rounding, and nothing else."""

from __future__ import annotations

import numpy as np
import torch

from patcomp.authoring import Coreai, CoreaiSource, CoreaiTarget
from patcomp.ir import coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.types import Shape
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Const, OpView, Rewrite, call, example, op_rule
from patterns_catalog.slices import slice_axis
from tests.proof_seeds.seeds import Ops, of_coreai, seed

# ---- declarative ---------------------------------------------------------------------------------


@seed(
    "parts of other lengths have other weights in the mean",
    Ops({"x": "2x1xf32", "y": "2x3xf32"}, lambda x, y: coreai.reduce_mean(coreai.concat(1, [x, y]), [1])),
)
@of_coreai("target", {"x": "2x4xf32", "y": "2x4xf32", "axis": 1, "axes": [1]})
def mean_of_two_means(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, axis: Const, axes: Const) -> Rewrite:
    "mean(concat(x, y)) -> (mean(x) + mean(y)) / 2 along the axis of the concat"
    z = a.reduce_mean(a.concat(axis, [x, y]), axes)
    both = c.broadcasting_add(c.reduce_mean(x, axes), c.reduce_mean(y, axes))
    return Rewrite(z, to=c.broadcasting_mul(both, 0.5), where=[x.dtype == "f32", axes.value == axis.value])


@seed(
    "exp(x) is infinite from 89 on, so that the quotient is NaN where the softmax is a number",
    Ops({"x": "1x2xf32"}, lambda x: coreai.softmax(x, 1), {"x": torch.tensor([[100.0, 99.0]])}),
)
@of_coreai("target", {"x": "2x3xf32", "axis": 1})
def softmax_without_maximum(a: CoreaiSource, c: CoreaiTarget, x: Capture, axis: Const) -> Rewrite:
    "softmax(x) -> exp(x) / sum(exp(x))"
    powers = c.exp(x)
    total = c.reduce_sum(powers, call(np.atleast_1d, axis.values))
    return Rewrite(a.softmax(x, axis), to=c.broadcasting_divide(powers, total), where=[x.dtype == "f32"])


def _has_one(shape: Shape) -> bool:
    return 1 in shape


@seed(
    "any dimension of size 1 lets the rule fire, also one that does not move",
    Ops({"x": "1x24xf32"}, lambda x: coreai.transpose(coreai.reshape(x, [1, 2, 3, 4]), [0, 2, 1, 3])),
)
@of_coreai("target", {"x": "2x12xf32", "s": [2, 1, 3, 4]})
def heads_of_one_position(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture) -> Rewrite:
    "transpose(reshape(x, s), [0, 2, 1, 3]) -> reshape(x) of one position"
    split = a.reshape(x, s)
    y = a.transpose(split, [0, 2, 1, 3])
    return Rewrite(y, to=c.reshape(x, y.shape), where=[y.is_static, call(_has_one, split.shape)])


@seed(
    "the scale is one of outputs, but along the last axes of the weight it multiplies the inputs",
    Ops(
        {"x": "1x2x3x3xf32", "w": "2x2x1x1xf32", "scale": "2x1x1xf32"},
        lambda x, w, scale: coreai.broadcasting_mul(
            coreai.conv2d(x, w, *(coreai.constant(n, "ui32") for n in ([1, 1], [1, 1], 1))), scale
        ),
    ),
    right_on_example=False,
)
@of_coreai("target", {
    "x": "1x4x3x3xf32", "w": "4x4x1x1xf32", "scale": "4x1x1xf32", "stride": [1, 1], "dilation": [1, 1], "groups": 1,
})  # fmt: skip
def scale_into_inputs(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, w: Capture, scale: Capture, stride: Const, dilation: Const,
    groups: Const,
) -> Rewrite:  # fmt: skip
    "conv2d(x, w) * scale -> conv2d(x, w * scale)"
    y = a.conv2d(x, w, stride, dilation, groups) * scale
    sizes = [scale.rank == 3, scale.shape[0] == w.shape[0], w.shape[0] == w.shape[1], scale.shape[1] == 1]
    product = c.broadcasting_mul(w, scale)
    return Rewrite(y, to=c.conv2d(x, product, stride, dilation, groups), where=[*sizes, scale.shape[2] == 1])


# ---- procedural ----------------------------------------------------------------------------------


def _convolution(x: Value, w: Value) -> Value:
    made = coreai.conv2d(x, w, *(coreai.constant(n, "ui32") for n in ([2, 2], [1, 1], 1)))
    return coreai.broadcasting_mul(made, 2.0)


@seed(
    "the new convolution has stride and dilation in the other order",
    Ops({"x": "1x1x4x4xf32", "w": "1x1x2x2xf32"}, _convolution),
)
@op_rule("target", "coreai.decomposable.broadcasting_mul", name="number into the window", size=2, examples=[
    example("1x2x5x5xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 54).reshape(3, 2, 3, 3)) * 2.0)),
])  # fmt: skip
def number_into_window(op: OpView, c: Coreai) -> Value | None:
    "conv2d(x, w) * n -> conv2d(x, w * n)"
    made, number = op.input, op.other
    before = made.made_by("coreai.conv2d")
    if before is None or number.rank or not made.is_read_once:
        return None
    x, weight, stride, dilation, groups = map(Value, before.operands)
    scaled = c.broadcasting_mul(weight, number)
    return c.conv2d(x, scaled, dilation, stride, groups, result_type=op.result.attribute)


@seed(
    "a transpose of all axes also moves the leading ones; right are the last two, which are all axes of a matrix",
    Ops({"x": "2x2x2xf32"}, lambda x: coreai.broadcasting_batch_matmul(x, coreai.broadcasting_mul(x, x))),
)
@op_rule("target", "coreai.decomposable.broadcasting_batch_matmul", name="product of swapped operands", examples=[
    example("2x3xf32", program=lambda torch, x: torch.linspace(-1, 1, 8).reshape(4, 2) @ x),
])  # fmt: skip
def product_of_swapped_operands(op: OpView, c: Coreai) -> Value | None:
    "x @ y -> transpose(transpose(y) @ transpose(x)), once"
    x, y = op.x, op.y
    if x.rank != y.rank or not x.is_static or x.made_by("coreai.transpose") is not None:
        return None
    back = list(reversed(range(x.rank)))
    return c.transpose(c.broadcasting_batch_matmul(c.transpose(y, back), c.transpose(x, back)), back)


@seed(
    "the amounts before and after the tensor are exchanged",
    Ops({"x": "3xf32"}, lambda x: coreai.pad(x, [1, 2], 0.0, "constant")),
)
@op_rule("target", "coreai.pad", name="padding as concat", examples=[
    example("2x3x4xf32", program=lambda torch, x: torch.nn.functional.pad(x, (1, 1), value=0.5)),
])  # fmt: skip
def padding_on_the_other_side(op: OpView, c: Coreai) -> Value | None:
    "pad(x) -> concat(constant, x, constant) along each axis"
    x, amounts, mode = op.input, constant_integers(op.padding.ssa), op["padding_mode"]
    if amounts is None or not x.is_static or mode is None or mode.data != "constant":
        return None
    for axis in range(x.rank):
        after, before = amounts[2 * axis : 2 * axis + 2]
        sizes = [list(x.static_shape) for _ in range(2)]
        sizes[0][axis], sizes[1][axis] = before, after
        left, right = (c.broadcast_to(op.padding_value, size) if 0 not in size else None for size in sizes)
        parts = [part for part in (left, x, right) if part is not None]
        x = c.concat(axis, parts) if len(parts) > 1 else x
    return x


@seed(
    "a run of descending numbers is cut as one slice, which has the rows in ascending order",
    Ops({"x": "4x2xf32"}, lambda x: coreai.gather_nd(x, [[2], [1], [0]])),
)
@op_rule("target", "coreai.gather_nd", name="runs of rows as slices", examples=[
    example("5x3x4xf32", program=lambda torch, x: torch.roll(x, -2, 0)),
])  # fmt: skip
def runs_in_either_direction(op: OpView, c: Coreai) -> Value | None:
    "rows of a few runs of consecutive numbers -> slices, side by side"
    x, indices = op.input, op.indices.constant
    if indices is None or indices.ndim != 2 or indices.shape[1] != 1 or not indices.size or not x.is_static:
        return None
    rows = indices.reshape(-1).astype(np.int64) % x.static_shape[0]
    runs = np.split(rows, np.flatnonzero(np.abs(np.diff(rows)) != 1) + 1)
    parts = [slice_axis(c, x, 0, int(run.min()), int(run.max()) + 1) for run in runs]
    return parts[0] if len(parts) == 1 else c.concat(0, parts)

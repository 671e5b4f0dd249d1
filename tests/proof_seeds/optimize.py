"""Wrong rules of the stage `optimize`, on known sizes. An optimize rule must hold to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from patcomp.authoring import Coreai, CoreaiSource, CoreaiTarget
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Const, OpView, Rewrite, call, example, op_rule
from tests.proof_seeds.seeds import Ops, of_coreai, seed


def _cube(body: Callable[[Value], Value]) -> Ops:
    return Ops({"x": "3x3x3xf32"}, body)


def _entry(vector: np.ndarray, index: np.ndarray) -> int:
    return int(vector[int(index)])


def _is_axis(axis: np.ndarray) -> bool:
    return axis.size == 1 and bool((axis >= 0).all())


def _is_exchange(permutation: np.ndarray) -> bool:
    return permutation.tolist() == [1, 0]


def _are_plain(*bounds: np.ndarray) -> bool:
    """Whether vectors of one element count from the front."""
    return all(each.shape == (1,) and int(each[0]) >= 0 for each in bounds)


# ---- numbers -------------------------------------------------------------------------------------


@seed(
    "x + 0.0 is 0.0 for x = -0.0",
    Ops({"x": "2xf32"}, lambda x: coreai.broadcasting_add(x, 0.0), {"x": torch.tensor([-0.0, 1.0])}),
)
@of_coreai("optimize", {"x": "2x3xf32", "zero": 0.0})
def plus_either_zero(a: CoreaiSource, c: CoreaiTarget, x: Capture, zero: Const) -> Rewrite:
    "x + 0 -> x"
    y = x + zero
    return Rewrite(y, to=x, where=[zero.rank == 0, zero.value == 0, y.type == x.type])


@seed(
    "0.0 - 0.0 is 0.0, but 0.0 * -1.0 is -0.0",
    Ops({"x": "2xf32"}, lambda x: coreai.broadcasting_sub(0.0, x), {"x": torch.tensor([0.0, 1.0])}),
)
@of_coreai("optimize", {"x": "2x3xf32", "zero": 0.0})
def zero_minus_as_negation(a: CoreaiSource, c: CoreaiTarget, x: Capture, zero: Const) -> Rewrite:
    "0 - x -> x * -1"
    y = zero - x
    where = [zero.rank == 0, zero.value == 0, x.dtype == "f32", y.type == x.type]
    return Rewrite(y, to=c.broadcasting_mul(x, -1.0), where=where)


@seed(
    "the comparison is false for x = NaN and takes y, but the minimum is NaN",
    Ops(
        {"x": "2xf32", "y": "2xf32"},
        lambda x, y: coreai.broadcasting_where(coreai.broadcasting_greater(y, x), x, y),
        {"x": torch.tensor([torch.nan, 1.0])},
    ),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "2x3xf32"})
def minimum_by_comparison(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "where(y > x, x, y) -> minimum(x, y)"
    return Rewrite(a.broadcasting_where(a.broadcasting_greater(y, x), x, y), to=c.broadcasting_minimum(x, y))


@seed(
    "the narrow type does not have all integers of the type of x",
    Ops(
        {"x": "2xsi32"},
        lambda x: coreai.cast(coreai.cast(x, "si8"), "si32"),
        {"x": torch.tensor([3, 300], dtype=torch.int32)},
    ),
)
@of_coreai("optimize", {"x": "2x3xsi32", "narrow": "si8", "to": "si32"})
def integers_there_and_back(a: CoreaiSource, c: CoreaiTarget, x: Capture, narrow: Attr, to: Attr) -> Rewrite:
    "cast(cast(x, narrow), t) -> x where x has the type t, and all three are integers"
    middle = a.escaping(a.cast(x, narrow))
    y = a.cast(middle, to)
    return Rewrite(y, to=x, where=[y.type == x.type, x.dtype == "si32", middle.dtype.is_in("si8", "si16")])


@seed(
    "the division of integers rounds towards zero, floor_divide rounds down",
    Ops(
        {"x": "2xsi32"},
        lambda x: coreai.broadcasting_floor_divide(x, 4),
        {"x": torch.tensor([-7, 7], dtype=torch.int32)},
    ),
)
@of_coreai("optimize", {"x": "2x3xsi32[0,9]", "divisor": 4})
def floor_division_by_truncation(a: CoreaiSource, c: CoreaiTarget, x: Capture, divisor: Const) -> Rewrite:
    "floor_divide(x, n) -> x / n where n is positive"
    y = a.broadcasting_floor_divide(x, divisor)
    where = [divisor.rank == 0, divisor.value > 0, x.dtype == "si32", y.type == x.type]
    return Rewrite(y, to=c.broadcasting_divide(x, divisor), where=where)


@seed(
    "a negative factor makes relu(x) * n negative, and relu(x * n) is not",
    Ops({"x": "3xf32"}, lambda x: coreai.broadcasting_mul(coreai.relu(x), -2.0)),
)
@of_coreai("optimize", {"x": "2x3xf32", "factor": 2.0})
def factor_before_relu(a: CoreaiSource, c: CoreaiTarget, x: Capture, factor: Const) -> Rewrite:
    "relu(x) * n -> relu(x * n) for a number n"
    y = a.relu(x) * factor
    where = [factor.rank == 0, factor.value != 0, y.type == x.type]
    return Rewrite(y, to=c.relu(c.broadcasting_mul(x, factor)), where=where)


# ---- orders of axes --------------------------------------------------------------------------------


@seed(
    "the composed permutation is p[q], not q[p]",
    _cube(lambda x: coreai.transpose(coreai.transpose(x, [1, 2, 0]), [0, 2, 1])),
)
@of_coreai("optimize", {"x": "2x3x4xf32", "p": [0, 2, 1], "q": [0, 2, 1]})
def transposes_composed_backwards(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), q) -> transpose(x, q[p])"
    y = a.transpose(a.escaping(a.transpose(x, p)), q)
    return Rewrite(y, to=c.transpose(x, q.values[p.values], result_type=y.type))


@seed(
    "the axis of x is p[axis]; the rule takes the axis to which p moves it, which is the same for exchanged pairs only",
    _cube(lambda x: coreai.softmax(coreai.transpose(x, [1, 2, 0]), 0)),
)
@of_coreai("optimize", {"x": "2x3x4xf32", "p": [0, 2, 1], "axis": 2})
def softmax_of_transpose_by_inverse(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, axis: Const) -> Rewrite:
    "softmax(transpose(x, p), axis) -> transpose(softmax(x, p^-1[axis]), p)"
    y = a.softmax(a.transpose(x, p), axis)
    inverse = call(np.argsort, p.values)
    moved = c.softmax(x, call(_entry, inverse, axis.values))
    return Rewrite(y, to=c.transpose(moved, p, result_type=y.type), where=[call(_is_axis, axis.values)])


@seed(
    "transpose(x) @ transpose(y) is transpose(y @ x): the operands must change places",
    Ops(
        {"x": "2x2xf32", "y": "2x2xf32"},
        lambda x, y: coreai.broadcasting_batch_matmul(
            coreai.transpose(x, [1, 0]), coreai.transpose(coreai.broadcasting_mul(y, y), [1, 0])
        ),
    ),
    right_on_example=False,
)
@of_coreai("optimize", {"x": "3x3xf32", "y": "3x3xf32", "p": [1, 0]})
def product_of_transposes(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, p: Const) -> Rewrite:
    "transpose(x) @ transpose(y) -> transpose(x @ y) for square matrices"
    z = a.broadcasting_batch_matmul(a.transpose(x, p), a.transpose(y, p))
    square = [x.rank == 2, x.shape == y.shape, x.shape[0] == x.shape[1], call(_is_exchange, p.values)]
    return Rewrite(z, to=c.transpose(c.broadcasting_batch_matmul(x, y), p), where=square)


@seed(
    "`axis` counts the axes of reshape(x, s); x has the axis at another number if its rank is another",
    Ops({"x": "2x3x4xf32"}, lambda x: coreai.softmax(coreai.reshape(x, [6, 4]), 1)),
)
@of_coreai("optimize", {"x": "2x3x4xf32", "s": [3, 2, 4], "axis": 2})
def softmax_of_reshape_by_number(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture, axis: Const) -> Rewrite:
    "softmax(reshape(x, s), axis) -> reshape(softmax(x, axis), s) where both have rows of one length"
    rows = a.reshape(x, s)
    y = a.softmax(rows, axis)
    last = call(int, axis.values) == rows.rank - 1
    where = [last, x.rank >= rows.rank, x.shape[-1] == rows.shape[-1]]
    return Rewrite(y, to=c.reshape(c.softmax(x, axis), s, result_type=y.type), where=where)


# ---- slices and parts ------------------------------------------------------------------------------


@seed(
    "the inner bounds count in steps of the outer slice, so that they must be multiplied by its step",
    Ops({"x": "9xf32"}, lambda x: coreai.slice_(coreai.slice_(x, [1], [9], [2]), [1], [3], [1])),
)
@of_coreai("optimize", {"x": "8xf32", "s": [1], "e": [7], "t": [1], "i": [2], "j": [4]})
def slice_of_slice_without_step(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Const, e: Const, t: Const, i: Const, j: Const
) -> Rewrite:
    "x[s:e:t][i:j] -> x[s+i : s+i+(j-i)*t : t]"
    middle = a.escaping(a.slice(x, s, e, t))
    y = a.slice(middle, i, j, [1])
    start = s.values + i.values
    within = [call(_are_plain, s.values, e.values, i.values, j.values), x.is_static, j.values[0] <= middle.shape[0]]
    whole = c.slice(x, start, start + (j.values - i.values) * t.values, t)
    return Rewrite(y, to=whole, where=[*within, x.rank == 1, t.values[0] > 0, j.values[0] > i.values[0]])


@seed(
    "position k becomes n - 1 - k, so that s:e becomes n-e : n-s; the rule has both bounds one lower",
    Ops({"x": "6xf32"}, lambda x: coreai.reverse(coreai.slice_(x, [1], [4], [1]), [0])),
    right_on_example=False,
)
@of_coreai("optimize", {"x": "8xf32", "s": [2], "e": [5]})
def reversed_slice_off_by_one(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Const, e: Const) -> Rewrite:
    "reverse(x[s:e]) -> reverse(x)[n-1-e : n-1-s] of a vector"
    y = a.reverse(a.slice(x, s, e, [1]), [0])
    last = x.shape[0] - 1
    within = [x.rank == 1, x.is_static, call(_are_plain, s.values, e.values), e.values[0] <= last]
    return Rewrite(y, to=c.slice(c.reverse(x, [0]), last - e.values, last - s.values, [1]), where=within)


@seed(
    "the rule reads the bounds of axis 0, and the parts may be joined along another axis",
    Ops({"x": "2x3xf32", "y": "2x3xf32"}, lambda x, y: coreai.slice_(coreai.concat(1, [x, y]), [0, 2], [2, 5], [1, 1])),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "4x3xf32", "axis": 0, "s": [0, 0], "e": [2, 3], "t": [1, 1]})
def part_of_concat_by_first_axis(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, axis: Const, s: Const, e: Const, t: Const
) -> Rewrite:
    "concat(x, y)[0:n] -> x where x has n rows"
    z = a.slice(a.escaping(a.concat(axis, [x, y])), s, e, t)
    rows = [s.values[0] == 0, e.values[0] == x.shape[0], t.value == 1]
    return Rewrite(z, to=x, where=[z.type == x.type, x.is_static, *rows])


@seed(
    "parts that meet in either order are joined, but only one order is x",
    Ops({"x": "5xf32"}, lambda x: coreai.concat(0, [coreai.slice_(x, [2], [5], [1]), coreai.slice_(x, [0], [2], [1])])),
)
@of_coreai("optimize", {"x": "5xf32", "s": [0], "e": [2], "i": [2], "j": [5]})
def parts_in_any_order(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Const, e: Const, i: Const, j: Const) -> Rewrite:
    "concat(x[0:k], x[k:n]) -> x of a vector"
    y = a.concat(0, [a.slice(x, s, e, [1]), a.slice(x, i, j, [1])])
    meet = (e.values[0] == i.values[0]) | (j.values[0] == s.values[0])
    plain = call(_are_plain, s.values, e.values, i.values, j.values)
    return Rewrite(y, to=x, where=[x.is_static, y.type == x.type, plain, meet])


@seed(
    "the second update starts where the first starts, but it may end earlier and leave a part of the first",
    Ops(
        {"x": "6xf32"},
        lambda x: coreai.slice_update(coreai.slice_update(x, [1], [5], [1], [9.0] * 4), [1], [3], [1], [8.0] * 2),
    ),
)
@of_coreai("optimize", {"x": "6xf32", "u": "3xf32", "v": "3xf32", "s": [1], "e": [4], "j": [4]})
def update_over_update(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, u: Capture, v: Capture, s: Const, e: Const, j: Const
) -> Rewrite:
    "x[s:e] = u; x[s:j] = v -> x[s:j] = v"
    y = a.slice_update(a.slice_update(x, s, e, [1], u), s, j, [1], v)
    plain = call(_are_plain, s.values, e.values, j.values)
    return Rewrite(y, to=c.slice_update(x, s, j, [1], v), where=[x.is_static, plain, y.type == x.type])


@seed(
    "every column of indices counts from the end of an axis of its own; the rule adds the size of the first axis",
    Ops({"x": "3x5xf32"}, lambda x: coreai.gather_nd(x, [[0, -2], [1, 1]])),
)
@op_rule("optimize", "coreai.gather_nd", examples=[
    example("4x4xf32", program=lambda _, x: x[[0, -4], [-1, 1]]),
])  # fmt: skip
def gather_from_front_of_square(op: OpView, c: Coreai) -> Value | None:
    "gather_nd(x, i) -> gather_nd(x, i + size where i < 0) of constant indices"
    numbers = constant_values(op.indices.ssa, Builder.current().blobs)
    if numbers is None or not (numbers < 0).any() or not op.input.is_static:
        return None
    moved = np.where(numbers < 0, numbers + op.input.static_shape[0], numbers)
    return c.gather_nd(op.input, moved.astype(numbers.dtype), result_type=op.result.attribute)

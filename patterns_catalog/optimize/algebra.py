"""Identities of Core AI ops, one a rule. Each holds to the last bit, for infinities, NaN and zeros of either sign too.

To add one, write it here: the tests, the lint and the list of rules find it. `a.escaping(...)` around an op says that
the rule also applies where other ops use its result; the op then stays for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.ir.casts import holds
from patcomp.ir.dialect import OPS, ops_with
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Activation
from patcomp.ir.types import Shape
from patcomp.patterns import Attr, Capture, Const, Rewrite, Rule, any_of, call, rule


def algebra(example: Mapping[str, Any], **options: Any) -> Callable[[Callable[..., Rewrite]], Rule]:
    """Declare an identity; arguments as for `rule`."""
    return rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example=example, **options)


# ---- numbers -------------------------------------------------------------------------------------


def _is_neutral(zero: np.ndarray, negative: bool) -> bool:
    """Whether every element is 0, and the zero of that sign among floats."""
    kind = zero.dtype.kind
    return not zero.any() and kind != "c" and (kind in "biu" or bool((np.signbit(zero) == negative).all()))


@algebra(example={"x": "2x3xf32"})
def times_one(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x * 1 -> x"
    y = x * 1
    return Rewrite(y, to=x, where=[y.type == x.type])


@algebra(example={"x": "2x3xf32"})
def divided_by_one(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x / 1 -> x"
    y = x / 1
    return Rewrite(y, to=x, where=[y.type == x.type])


@algebra(example={"x": "2x3xf32", "zero": -0.0})
def plus_zero(a: CoreaiSource, c: CoreaiTarget, x: Capture, zero: Const) -> Rewrite:
    "x + 0 -> x for integers, x + -0.0 -> x for floats, where -0.0 + 0.0 is 0.0"
    y = x + zero
    return Rewrite(y, to=x, where=[zero.value == 0, call(_is_neutral, zero.values, True), y.type == x.type])


@algebra(example={"x": "2x3xf32", "zero": 0.0})
def minus_zero(a: CoreaiSource, c: CoreaiTarget, x: Capture, zero: Const) -> Rewrite:
    "x - 0 -> x, but not x - -0.0, which is x + 0.0"
    y = x - zero
    return Rewrite(y, to=x, where=[zero.value == 0, call(_is_neutral, zero.values, False), y.type == x.type])


def _is_one_number(number: np.ndarray) -> bool:
    return number.size == 1 and number.dtype.kind in "if"


@algebra(example={"x": "2x3xf32", "y": "3xf32", "number": -1.0})
def plus_negated(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, number: Const) -> Rewrite:
    "x + y * -1 -> x - y"
    negated = y * number
    z = x + negated
    return Rewrite(
        z,
        to=c.broadcasting_sub(x, y),
        where=[number.value == -1, call(_is_one_number, number.values), negated.type == y.type],
    )


@algebra(example={"x": "2x3xf32", "to": "f32"})
def cast_to_same(a: CoreaiSource, c: CoreaiTarget, x: Capture, to: Attr) -> Rewrite:
    "cast(x, t) -> x where x has the type t"
    y = a.cast(x, to)
    return Rewrite(y, to=x, where=[y.type == x.type])


@algebra(example={"x": "2x3xf16", "wide": "f32", "to": "bf16"})
def cast_of_cast(a: CoreaiSource, c: CoreaiTarget, x: Capture, wide: Attr, to: Attr) -> Rewrite:
    "cast(cast(x, wide), t) -> cast(x, t) where wide has every number of the type of x"
    y = a.cast(a.escaping(a.cast(x, wide)), to)
    one_shape = call(tuple, x.shape) == call(tuple, y.shape)  # a cast may also make dimensions static or dynamic
    return Rewrite(y, to=c.cast(x, to, result_type=y.type), where=[call(holds, wide, x.dtype), one_shape])


# ---- shapes --------------------------------------------------------------------------------------


def _dynamic(shape: Shape) -> int:
    """How many dimensions of a shape are dynamic."""
    return shape.count(None)


def _is_determined(shape: Shape) -> bool:
    """Whether the number of elements determines a shape."""
    return None not in shape or (_dynamic(shape) == 1 and 0 not in shape)


@algebra(example={"x": "2x3xf32", "shape": [2, 3]})
def reshape_to_same(a: CoreaiSource, c: CoreaiTarget, x: Capture, shape: Capture) -> Rewrite:
    "reshape(x, shape of x) -> x, also with one dynamic dimension, which the number of elements determines"
    y = a.reshape(x, shape)
    return Rewrite(y, to=x, where=[y.type == x.type, call(_is_determined, x.shape)])


@algebra(example={"x": "2x3xf32", "shape": [2, 3]})
def broadcast_to_same(a: CoreaiSource, c: CoreaiTarget, x: Capture, shape: Capture) -> Rewrite:
    "broadcast_to(x, shape of x) -> x"
    y = a.broadcast_to(x, shape)
    return Rewrite(y, to=x, where=[y.type == x.type, x.is_static])


@algebra(example={"x": "1x3xf32", "times": [1], "axes": [0]})
def repeat_once(a: CoreaiSource, c: CoreaiTarget, x: Capture, times: Capture, axes: Capture) -> Rewrite:
    "tile(x, 1) -> x, and the same for broadcast_in_dims"
    y = any_of(a.tile(x, times), a.broadcast_in_dims(x, times, axes))
    return Rewrite(y, to=x, where=[y.type == x.type, x.is_static])


@algebra(example={"x": "2x3xf32", "start": [0, 0], "end": [2, 9], "step": [1, 1]})
def slice_of_everything(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, start: Capture, end: Capture, step: Const
) -> Rewrite:
    "x[:] -> x"
    y = a.slice(x, start, end, step)
    return Rewrite(y, to=x, where=[y.type == x.type, x.is_static, step.value == 1])


@algebra(example={"x": "2x3xf32", "axis": 1})
def concat_of_one(a: CoreaiSource, c: CoreaiTarget, x: Capture, axis: Capture) -> Rewrite:
    "concat([x]) -> x"
    y = a.concat(axis, [x])
    return Rewrite(y, to=x, where=[y.type == x.type])


@algebra(example={"x": "2x1x3xf32", "axes": [1]})
def dims_by_reshape(a: CoreaiSource, c: CoreaiTarget, x: Capture, axes: Capture) -> Rewrite:
    "expand_dims(x) -> reshape(x), shrink_dims(x) -> reshape(x)"
    y = any_of(a.expand_dims(x, axes), a.shrink_dims(x, axes))
    return Rewrite(y, to=c.reshape(x, y.shape), where=[x.is_static, y.is_static])


def _dims_and_back(first: str, second: str) -> Rule:
    @algebra(name=f"{second}_of_{first}", example={"x": "2x1x3xf32", "axes": [1], "back": [1]})
    def dims_and_back(a: CoreaiSource, c: CoreaiTarget, x: Capture, axes: Const, back: Const) -> Rewrite:
        "g(f(x, axes), axes) -> x where f inserts or removes dimensions of size 1, and g does the opposite"
        y = a.op(second, a.escaping(a.op(first, x, axes)), back)
        return Rewrite(y, to=x, where=[y.type == x.type, call(np.array_equal, axes.values, back.values)])

    return dims_and_back


dims_and_back = [_dims_and_back("shrink_dims", "expand_dims"), _dims_and_back("expand_dims", "shrink_dims")]


@algebra(example={"x": "2x3x4xf32", "s": [6, 4], "t": [3, 8]})
def reshape_of_reshape(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture, t: Capture) -> Rewrite:
    """reshape(reshape(x, s), t) -> reshape(x, t)

    Not where x has more dynamic dimensions: -1 in t may stand for a size of 0 only where x has a single one.
    """
    middle = a.escaping(a.reshape(x, s))
    y = a.reshape(middle, t)
    return Rewrite(
        y, to=c.reshape(x, t, result_type=y.type), where=[call(_dynamic, x.shape) <= call(_dynamic, middle.shape)]
    )


def _op_of_reshape(op: str) -> Rule:
    @algebra(name=f"{op}_of_reshape", example={"x": "2x3xf32", "s": [3, 2]})
    def reshape_last(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture) -> Rewrite:
        """f(reshape(x, s)) -> reshape(f(x), s) where f works element by element

        A linear layer of more than two dimensions is reshape, batch_matmul, reshape. Between two layers they meet.
        """
        y = a.op(op, a.reshape(x, s))
        return Rewrite(y, to=c.reshape(c.op(op, x), s, result_type=y.type))

    return reshape_last


_activations = [OPS[name].ROW for name in ops_with(Activation)]
op_of_reshape = [_op_of_reshape(row.builder) for row in _activations if not row.properties]


@algebra(example={"x": "2x3xf32", "s": [3, 2], "approximate": "tanh"})
def gelu_of_reshape(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture, approximate: Attr) -> Rewrite:
    "gelu(reshape(x, s)) -> reshape(gelu(x), s)"
    y = a.gelu(a.reshape(x, s), approximate)
    return Rewrite(y, to=c.reshape(c.gelu(x, approximate=approximate), s, result_type=y.type))


def _is_row(row: Shape, shape: Shape) -> bool:
    """Whether a tensor is as long as the last dimension of a shape, or a scalar."""
    return row == () or (len(row) == 1 and row[0] is not None and row == shape[-1:])


def _op_of_reshape_and_row(op: str) -> Rule:
    @algebra(name=f"{op}_of_reshape_and_row", example={"x": "2x3x4xf32", "row": "4xf32", "s": [6, 4]})
    def reshape_last(a: CoreaiSource, c: CoreaiTarget, x: Capture, row: Capture, s: Capture) -> Rewrite:
        "f(reshape(x, s), row) -> reshape(f(x, row), s) where the row is a scalar, or as long as the rows of both"
        rows = a.reshape(x, s)
        y = a.op(op, rows, row)
        where = [call(_is_row, row.shape, x.shape), call(_is_row, row.shape, rows.shape)]
        return Rewrite(y, to=c.reshape(c.op(op, x, row), s, result_type=y.type), where=where)

    return reshape_last


op_of_reshape_and_row = [
    _op_of_reshape_and_row(op) for op in ("broadcasting_add", "broadcasting_sub", "broadcasting_mul")
]


def _op_of_reshapes(op: str) -> Rule:
    @algebra(name=f"{op}_of_reshapes", example={"x": "2x3xf32", "y": "2x3xf32", "s": [3, 2], "t": [3, 2]})
    def reshape_last(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, s: Capture, t: Capture) -> Rewrite:
        "f(reshape(x, s), reshape(y, s)) -> reshape(f(x, y), s) where x and y have one shape"
        left, right = a.reshape(x, s), a.reshape(y, t)
        z = a.op(op, left, right)
        one_shape = [x.shape == y.shape, left.shape == right.shape]
        return Rewrite(z, to=c.reshape(c.op(op, x, y), z.shape), where=one_shape)

    return reshape_last


op_of_reshapes = [_op_of_reshapes(op) for op in ("broadcasting_add", "broadcasting_sub", "broadcasting_mul")]


# ---- transposes ----------------------------------------------------------------------------------


def _moves_units(permutation: Sequence[int], shape: Shape) -> bool:
    """Whether a permutation keeps the order of the dimensions, but for those of size 1."""
    kept = [axis for axis in permutation if shape[axis] != 1]
    return kept == sorted(kept)


@algebra(example={"x": "2x3xf32", "p": [0, 1]}, priority=1)
def transpose_in_order(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const) -> Rewrite:
    "transpose(x, [0, 1, ...]) -> x"
    return Rewrite(a.transpose(x, p), to=x, where=[p.values == call(sorted, p.values)])


@algebra(example={"x": "2x3x4xf32", "p": [1, 2, 0], "q": [0, 2, 1]})
def transpose_of_transpose(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), q) -> transpose(x, p[q])"
    y = a.transpose(a.escaping(a.transpose(x, p)), q)
    return Rewrite(y, to=c.transpose(x, p.values[q.values], result_type=y.type))


@algebra(example={"x": "2x1x3xf32", "p": [1, 0, 2]})
def transpose_of_units(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const) -> Rewrite:
    "transpose(x, p) -> reshape(x) where p only moves dimensions of size 1"
    y = a.transpose(x, p)
    return Rewrite(y, to=c.reshape(x, y.shape), where=[x.is_static, call(_moves_units, p.values, x.shape)])


def _order_with_units(permutation: Sequence[int], shape: Shape, units: Shape) -> list[int]:
    """The permutation of a shape, followed by dimensions of size 1, whose result has the shape `units`; empty if that
    is not the permuted shape with dimensions of size 1 added."""
    order, axes, added = [], list(permutation), len(shape)
    for size in units:
        if axes and shape[axes[0]] == size:
            order.append(axes.pop(0))
        elif size == 1:
            order.append(added)
            added += 1
        else:
            return []
    return [] if axes else order


def _and_units(shape: Shape, rank: int) -> Shape:
    """A shape followed by dimensions of size 1."""
    return (*shape, *([1] * (rank - len(shape))))


@algebra(example={"x": "2x12xf32", "s": [2, 3, 4], "p": [1, 0, 2], "t": [1, 3, 2, 4]})
def units_of_transpose(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture, p: Const, t: Capture) -> Rewrite:
    "reshape(transpose(reshape(x, s), p), t) -> transpose(reshape(x), q) where t only adds dimensions of size 1"
    middle = a.reshape(x, s)
    y = a.reshape(a.transpose(middle, p), t)
    order = call(_order_with_units, p.values, middle.shape, y.shape)
    where = [y.is_static, middle.is_static, call(len, order) > 0]
    return Rewrite(y, to=c.transpose(c.reshape(x, call(_and_units, middle.shape, y.rank)), order), where=where)


@algebra(example={"x": "2x3x4xf32", "p": [1, 2, 0], "i": [1], "end": [2], "step": [1], "to": "si32"})
def size_of_transposed(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, i: Const, end: Const, step: Const, to: Attr
) -> Rewrite:
    """get_shape(transpose(x, p))[i] -> get_shape(x)[p[i]]

    The runtime loses a tensor where a size is read of a transposed state that is written to and transposed again.
    """
    sizes = a.escaping(a.get_shape(a.escaping(a.transpose(x, p))))
    y, axis = a.slice(any_of(a.escaping(a.cast(sizes, to)), sizes), i, end, step), p.values[i.values]
    size = c.slice(c.cast(c.get_shape(x), y.dtype), axis, axis + 1, [1])
    return Rewrite(y, to=size, where=[i.values[0] >= 0, y.shape == (1,)])


# ---- sorts ---------------------------------------------------------------------------------------


def _is_infinity(number: np.ndarray) -> bool:
    return bool(np.isposinf(number.astype(np.float64)).all())


@algebra(
    example={"x": "3x4xf32", "infinity": float("inf"), "axis": 1, "descending": True, "stable": True, "to": "si32"}
)
def sort_of_softmax(
    a: CoreaiSource,
    c: CoreaiTarget,
    x: Capture,
    infinity: Const,
    axis: Const,
    descending: Const,
    stable: Const,
    to: Attr,
) -> Rewrite:
    """a sort of softmax(x) that puts NaN at the end of infinities -> argsort(softmax(x))

    All of a row of a softmax are NaN, or none. Equal values stay in their order in a stable sort.
    """
    row = a.escaping(a.softmax(x, axis))
    missing = a.broadcasting_not_equal(row, row)
    first = a.argsort(a.broadcasting_where(missing, infinity, row), axis, descending, stable)
    second = a.argsort(a.gather_along_axis(a.cast(missing, to), first, axis), axis, descending, stable)
    y = a.gather_along_axis(first, second, axis)
    where = [call(_is_infinity, infinity.values), stable.values[()], infinity.shape == ()]
    return Rewrite(y, to=c.argsort(c.softmax(x, axis), axis, descending, stable), where=where)


# ---- broadcasts ----------------------------------------------------------------------------------


def _op_of_broadcasts(op: str) -> Rule:
    example = {"x": "1x3xf32", "y": "2x1xf32", "s": [2, 3], "t": [2, 3]}

    @algebra(name=f"{op}_of_broadcasts", example=example)
    def op_alone(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, s: Capture, t: Capture) -> Rewrite:
        "f(broadcast_to(x), broadcast_to(y)) -> f(x, y) where f(x, y) is as large, also with one of the two"
        f, wide_x, wide_y = partial(a.op, op), a.escaping(a.broadcast_to(x, s)), a.escaping(a.broadcast_to(y, t))
        z = any_of(f(wide_x, wide_y), f(wide_x, y), f(x, wide_y))
        return Rewrite(z, to=c.op(op, x, y), where=[z.shape == call(broadcast_shapes, x.shape, y.shape)])

    return op_alone


op_of_broadcasts = [_op_of_broadcasts(f"broadcasting_{op}") for op in ("add", "sub", "mul", "divide")]


def _op_of_unit(op: str) -> Rule:
    @algebra(name=f"{op}_of_unit", example={"x": "2x3xf32", "y": "1x1xf32", "s": []})
    def op_alone(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, s: Capture) -> Rewrite:
        "f(x, reshape(y, [])) -> f(x, y) where y has as few dimensions as x"
        number = a.reshape(y, s)
        z = a.op(op, x, number)
        return Rewrite(z, to=c.op(op, x, y), where=[number.rank == 0, y.rank <= x.rank])

    return op_alone


op_of_unit = [_op_of_unit(f"broadcasting_{op}") for op in ("add", "sub", "mul", "divide")]

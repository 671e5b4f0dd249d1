"""Products of tensors by a matrix, without joining the leading dimensions before and splitting them after.

PyTorch has products of matrices only, so that a linear layer of a tensor is reshape, product, addition of the bias,
reshape. Three rules find such a layer in one step. `product_of_reshape` handles other ops between the two reshapes. It
is procedural because it must look ahead: without a following reshape, there would not be fewer ops.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from patcomp.authoring import Coreai, CoreaiSource, CoreaiTarget
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Activation
from patcomp.ir.types import Shape
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, Capture, OpView, Rewrite, call, example, fragment, op_rule
from patterns_catalog.optimize.algebra import algebra

_PRODUCT = "coreai.decomposable.broadcasting_batch_matmul"
_OF_TWO = frozenset({"coreai.decomposable.broadcasting_add", "coreai.decomposable.broadcasting_mul"})
"""The ops behind which a reshape of rows can come, by the rules of `algebra.py`, if the other operand lets it."""


# ---- linear layers -------------------------------------------------------------------------------


def _is_layer(x: Shape, matrix: Shape, row: Shape, rows: Shape) -> bool:
    """Whether x has as many columns as the matrix has rows, and neither product has two unknown sizes."""
    known = len(matrix) == 2 and None not in matrix and 0 not in matrix and len(row) < 2
    return known and len(x) > 1 and x[-1] == matrix[0] and x.count(None) < 2 and rows.count(None) < 2


def _product_shape(x: Shape, matrix: Shape) -> Shape:
    return (*x[:-1], matrix[-1])


@algebra(example={"x": "2x3x4xf32", "matrix": "4x5xf32", "s": [6, 4], "t": [2, 3, 5]}, priority=1)
def linear_of_reshape(a: CoreaiSource, c: CoreaiTarget, x: Capture, matrix: Capture, s: Capture, t: Capture) -> Rewrite:
    "reshape(reshape(x, s) @ matrix, t) -> x @ matrix where that has the shape t"
    rows = a.broadcasting_batch_matmul(a.escaping(a.reshape(x, s)), matrix)
    y = a.reshape(rows, t)
    one_shape = y.shape == call(_product_shape, x.shape, matrix.shape)
    where = [call(_is_layer, x.shape, matrix.shape, (), rows.shape), one_shape]
    return Rewrite(y, to=c.broadcasting_batch_matmul(x, matrix), where=where)


_LAYER = {"x": "2x3x4xf32", "matrix": "4x5xf32", "row": "5xf32", "s": [6, 4]}


@algebra(example={**_LAYER, "t": [2, 3, 5]}, priority=2)
def linear_of_reshape_and_row(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, matrix: Capture, row: Capture, s: Capture, t: Capture
) -> Rewrite:
    "reshape(reshape(x, s) @ matrix + row, t) -> x @ matrix + row where that has the shape t"
    rows = a.broadcasting_batch_matmul(a.escaping(a.reshape(x, s)), matrix)
    y = a.reshape(a.broadcasting_add(rows, row), t)
    one_shape = y.shape == call(_product_shape, x.shape, matrix.shape)
    where = [call(_is_layer, x.shape, matrix.shape, row.shape, rows.shape), one_shape]
    return Rewrite(y, to=c.broadcasting_add(c.broadcasting_batch_matmul(x, matrix), row), where=where)


@algebra(example={**_LAYER, "t": [2, 3, 1, 5]}, priority=1)
def viewed_linear_of_reshape_and_row(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, matrix: Capture, row: Capture, s: Capture, t: Capture
) -> Rewrite:
    "reshape(reshape(x, s) @ matrix + row, t) -> reshape(x @ matrix + row, t)"
    rows = a.broadcasting_batch_matmul(a.escaping(a.reshape(x, s)), matrix)
    y = a.reshape(a.broadcasting_add(rows, row), t)
    made = c.broadcasting_add(c.broadcasting_batch_matmul(x, matrix), row)
    where = [call(_is_layer, x.shape, matrix.shape, row.shape, rows.shape)]
    return Rewrite(y, to=c.reshape(made, t, result_type=y.type), where=where)


# ---- what else works by rows ---------------------------------------------------------------------


@partial(fragment, source=coreai_namespace)
def _product_of_reshape(a: CoreaiSource) -> Any:
    return a.broadcasting_batch_matmul(a.reshape(ANY, ANY), ANY), []


@op_rule("optimize", _PRODUCT, size=2, pattern=_product_of_reshape, examples=[
    example("2x3x4xf32", program=lambda torch, x: (x.reshape(6, 4) @ torch.linspace(-1, 1, 20).reshape(4, 5)).tanh()
        .reshape(2, 3, 5)),
    example("2x3x4xf16", program=lambda torch, x: torch.relu(x.reshape(6, 4) @ torch.linspace(-1, 1, 20).half()
        .reshape(4, 5) + torch.linspace(0, 1, 5).half()).reshape(2, 3, 5)),
    example("2x3x2x2xf32", program=lambda torch, x: (x.reshape(6, 4) @ torch.linspace(-1, 1, 20).reshape(4, 5)).tanh()
        .reshape(2, 3, 5)),
])  # fmt: skip
def product_of_reshape(op: OpView, c: Coreai) -> Value | None:
    """reshape(f(reshape(x, [rows, n]) @ w)) -> reshape(f(x @ w)) where x has n columns and f works by rows

    If x has other columns than f, but the result has f's columns, only the first reshape is left: it gives the rows of
    the result.
    """
    rows, matrix = op.x, op.y
    view = rows.made_by("coreai.reshape")
    if view is None or matrix.rank != 2 or not matrix.is_static or 0 in matrix.shape or rows.rank < 2:
        return None
    x = Value(view.operands[0])
    has_columns = x.rank > 1 and x.shape[-1] == matrix.shape[0]
    end = _reshaped_again(op.operation, has_columns)
    if end is None:
        return None
    if not has_columns:
        before, after = Value(end.operands[0]).shape, Value(end.results[0]).shape
        if None in after or len(after) < 2 or after[-1] != before[-1] or after[:-1] == rows.shape[:-1]:
            return None
        x = c.reshape(x, [*Value(end.results[0]).static_shape[:-1], *matrix.static_shape[:1]])
    if x.shape.count(None) > 1 or op.result.shape.count(None) > 1:
        return None
    shape = [-1 if size is None else size for size in op.result.shape]
    return c.reshape(c.broadcasting_batch_matmul(x, matrix), shape, result_type=op.result.attribute)


def _reshaped_again(op: Operation, across_any: bool) -> Operation | None:
    """The reshape to which the rows that an op computes go through ops that work by rows; None if there is none.

    Args:
        across_any: go on behind an addition of a tensor that no reshape passes; the reshape before it is new then.
    """
    while True:
        uses = list(op.results[0].uses)
        if len({use.operation for use in uses}) != 1:
            return None
        user, index = uses[0].operation, uses[0].index
        if user.name == "coreai.reshape":
            return user
        if user.name in _OF_TWO:
            passes = across_any or len(uses) == 2 or _lets_reshapes_pass(Value(user.operands[1 - index]))
        else:
            passes = user.has_trait(Activation) or (user.name == _PRODUCT and index == 0)
        if not passes:
            return None
        op = user


def _lets_reshapes_pass(other: Value) -> bool:
    """Whether a reshape of one operand can come behind an addition or multiplication by another, by `algebra.py`."""
    view = other.made_by("coreai.reshape")
    return other.rank < 2 or (view is not None and other.is_read_once)

"""Products of tensors by a matrix, without joining the leading dimensions before and splitting them after.

A linear layer has no such reshapes after normalize. `product_of_reshape` handles other ops between the two reshapes. It
is procedural because it must look ahead: without a following reshape, there would not be fewer ops.
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Coreai, CoreaiSource
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Activation
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, OpView, example, op_rule, pattern

_PRODUCT = "coreai.decomposable.broadcasting_batch_matmul"
_OF_TWO = frozenset({"coreai.decomposable.broadcasting_add", "coreai.decomposable.broadcasting_mul"})
"""The ops behind which a reshape of rows can come, by the rules of `algebra.py`, if the other operand lets it."""


@pattern(source=coreai_namespace)
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
        # only to more dimensions: the reshape behind the new product has fewer, and would lead back
        if None in after or len(after) <= rows.rank or after[-1] != before[-1]:
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

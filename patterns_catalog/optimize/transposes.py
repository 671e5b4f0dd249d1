"""Transposes that cancel across elementwise ops.

    transpose(relu(transpose(x, p)) + y, q)   ->   relu(x) + transpose(y, q)     where p and q cancel

A rewrite leaves fewer transposes, so that rewrites end. A transpose that moves to another operand still counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import Coreai, CoreaiSource
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers
from patcomp.ir.dialect import create_op, ops_with
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Broadcasting
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, OpView, any_of, example, op_rule, pattern

_DEPTH = 6
"""The most ops between two transposes."""


@pattern(source=coreai_namespace)
def _transpose_of_elementwise(a: CoreaiSource) -> Any:
    specs = filter(None, map(coreai_namespace.spec, ops_with(Broadcasting)))
    return a.transpose(any_of(*(a.op(spec.name, *[ANY] * len(spec.arguments)) for spec in specs)), ANY), []


@op_rule("optimize", "coreai.transpose", size=2, pattern=_transpose_of_elementwise, examples=[
    example("2x3x4x5xf32", program=lambda torch, x: x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2)),
    example("2x3x4x5xf32", "2x4x1x3xf32", program=lambda torch, x, y: (
        (torch.nn.functional.gelu(x.permute(0, 2, 3, 1)) * y + 1).permute(0, 3, 1, 2))),
    example("2x3x4x5xf32", "2x5x3x4xf32", program=lambda torch, x, y: (
        (torch.linspace(1, 2, 5).view(5, 1, 1) * x.permute(0, 3, 1, 2) + y).permute(0, 2, 3, 1).tanh())),
    example("2x3x4xf32", "4x3x2xf32", program=lambda torch, x, y: (
        (x.permute(2, 1, 0).half() - y.half().permute(0, 1, 2)).permute(2, 1, 0).sigmoid())),
])  # fmt: skip
def transposes_across_elementwise(op: OpView, c: Coreai) -> Value | None:
    "transpose(f(transpose(x, p), y), q) -> f(x, transpose(y, q)) where p and q cancel, if fewer transposes are left"
    order = constant_integers(op.permutation.ssa)
    if order is None or (saved := _saved_by_moving(op.input, order, _DEPTH)) is None or saved < 0:
        return None
    covered: list[Operation] = []
    made = _moved(c, op.input, order, _DEPTH, covered)
    op.cover(*covered)
    return made


def _saved(value: Value, order: Sequence[int], depth: int) -> int:
    """How many transposes fewer there are if a value is computed in another order of axes; -1 for one more."""
    if _is_line(value):
        return 0
    before = _transpose(value)
    if before is not None:
        return int(value.is_read_once) - int(not _cancel(before, order))
    moved = _saved_by_moving(value, order, depth)
    return -1 if moved is None else max(-1, moved)


def _saved_by_moving(value: Value, order: Sequence[int], depth: int) -> int | None:
    """The same, if the op that computes the value is moved; None if it cannot be."""
    maker = value.made_by(Broadcasting)
    if maker is None or not depth or not value.is_read_once:
        return None
    operands = [Value(operand) for operand in maker.operands]
    if any(operand.rank != len(order) and not _is_line(operand) for operand in operands):
        return None
    return sum(_saved(operand, order, depth - 1) for operand in operands)


def _moved(c: Coreai, value: Value, order: Sequence[int], depth: int, covered: list[Operation]) -> Value:
    """A value in another order of axes, with as few transposes as `_saved` says."""
    if _is_line(value):
        if value.rank == 0:
            return value
        shape = [*([1] * (len(order) - value.rank)), *value.static_shape]
        shape = [shape[axis] for axis in order]
        known = value.constant
        return c.reshape(value, shape) if known is None else c.constant(known.reshape(shape), value.element_type)
    before = _transpose(value)
    if before is not None:
        covered.append(before)
        x = Value(before.operands[0])
        return x if _cancel(before, order) else c.transpose(x, [_order(before)[axis] for axis in order])
    saved = _saved_by_moving(value, order, depth)
    if saved is None or saved < -1:
        return c.transpose(value, list(order))
    maker = value.made_by(Broadcasting)
    assert maker is not None
    covered.append(maker)
    operands = [_moved(c, Value(operand), order, depth - 1, covered).ssa for operand in maker.operands]
    type_ = tensor(tuple(value.shape[axis] for axis in order), value.element_type)
    return Value(Builder.current().insert(create_op(maker.name, operands, [type_], dict(maker.properties))).results[0])


def _is_line(value: Value) -> bool:
    """Whether at most one dimension is larger than 1, so that a reshape moves its axes."""
    return value.is_static and sum(size != 1 for size in value.static_shape) < 2


def _transpose(value: Value) -> Operation | None:
    """The transpose that computes a value, if its order is known."""
    maker = value.made_by("coreai.transpose")
    return maker if maker is not None and constant_integers(maker.operands[1]) is not None else None


def _order(transpose: Operation) -> Sequence[int]:
    order = constant_integers(transpose.operands[1])
    assert order is not None
    return order


def _cancel(transpose: Operation, order: Sequence[int]) -> bool:
    before = _order(transpose)
    return [before[axis] for axis in order] == list(range(len(order)))

"""Weights that are computed from weights alone, such as those of a weight norm, or position embeddings in another size:
they are computed once, and not on each run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np

from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule
from patcomp.ir.traits import Movement
from patcomp.ir.types import TensorType, is_float, static_shape, storage_bytes
from patcomp.ir.xdsl import (
    DenseResourceAttr,
    Operation,
    OpResult,
    SSAValue,
    maker_of,
    ops_inside,
    replace_uses,
    set_name,
)
from patcomp.rewrites.folding import computes_alone, constant_for, evaluated

FEWEST = 2**14
"""The elements of the smallest result: to compute fewer takes no time that a run would show."""


def fold_weights(graph: Operation, module: IRModule, pure: Collection[str] = ()) -> int:
    """Fold what is computed from weights of floats, where the result takes no more bytes than the weights, and nothing
    else reads the weights. Return how many ops went.

    Ops that only move elements stay, for they may cost nothing and their weights keep their form; so do ops on
    quantized weights.

    Args:
        graph, module: the graph, and its module.
        pure: the graphs that only compute, as `pure_graphs` finds them.
    """
    fixed: dict[Operation, None] = {}
    """The ops whose operands are constants, or results of such ops."""
    for op in ops_inside(graph):
        if computes_alone(op, pure) and all(is_constant(value) or maker_of(value) in fixed for value in op.operands):
            fixed[op] = None
    count = 0
    for op in fixed:
        if len(op.results) == 1 and any(use.operation not in fixed for use in op.results[0].uses):
            count += _fold(op, fixed, module)
    return count


def _fold(root: Operation, fixed: Collection[Operation], module: IRModule) -> int:
    """Fold an op with all that it is computed from, if that pays."""
    result = root.results[0]
    cone = _cone(root, fixed)
    constants = dict.fromkeys(operand for op in cone for operand in op.operands if is_constant(operand))
    weights = [value for value in constants if _is_weight(value)]
    inside = set(cone)
    inner = [value for op in cone if op is not root for value in op.results]
    if not any(not op.has_trait(Movement) for op in cone):
        return 0
    if any(use.operation not in inside for value in (*inner, *weights) for use in value.uses):
        return 0
    if not _values_are_known(constants, module) or math.prod(static_shape(result.type)) < FEWEST:
        return 0
    if _bytes(result) > sum(map(_bytes, weights)):
        return 0
    known: dict[SSAValue, np.ndarray] = {}
    for op in cone:
        arrays = evaluated(op, module, known)
        if arrays is None:
            return 0
        known.update(zip(op.results, arrays, strict=True))
    made = constant_for(
        cone, result, known[result], module, step="weights computed once", key=result.name_hint or "constant"
    )
    set_name(made, result.name_hint)
    replace_uses(result, made)
    for op in reversed(cone):
        assert op.parent is not None
        op.parent.erase_op(op)
    return len(cone)


def _cone(root: Operation, fixed: Collection[Operation]) -> list[Operation]:
    """An op and all ops that it is computed from, in order."""
    found: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(root, False)]
    while stack:
        op, is_done = stack.pop()
        if is_done:
            found[op] = None
        elif op not in found:
            stack.append((op, True))
            makers = [operand.op for operand in op.operands if isinstance(operand, OpResult) and operand.op in fixed]
            stack += [(maker, False) for maker in reversed(makers) if maker not in found]
    return list(found)


def _is_weight(value: SSAValue) -> bool:
    maker = maker_of(value)
    assert maker is not None
    return isinstance(maker.properties["value"], DenseResourceAttr) and is_float(value.type.element_type)  # type: ignore[attr-defined]


def _values_are_known(constants: Iterable[SSAValue], module: IRModule) -> bool:
    """Whether all constants have values, which weights of a model on the meta device lack."""
    for value in constants:
        maker = maker_of(value)
        assert maker is not None
        attribute = maker.properties["value"]
        if isinstance(attribute, DenseResourceAttr) and attribute.resource_handle.data not in module.blobs:
            return False
    return True


def _bytes(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return storage_bytes(static_shape(value.type), value.type.element_type)

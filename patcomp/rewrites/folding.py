"""Constant folding: values that are computed from constants alone become constants, by the reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

import numpy as np

from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import is_removable
from patcomp.ir.constants import constant_attribute, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.dialect import create_op
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule, callee
from patcomp.ir.traits import Repetition, Unfolded
from patcomp.ir.types import BIT_WIDTHS, TensorType, element_name, shape_of
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import DenseIntOrFPElementsAttr, Operation, SSAValue, ops_inside, replace_uses

FOLD_LIMIT = 2**20
"""The elements that a folded result may have. Larger ones, such as the masks of very long sequences, are computed on
each run, because they would make an asset large."""

_REPEATED_LIMIT = 2**24
"""The elements of a folded result that repeats one element: it is stored once, but the evaluator makes all."""


def fold_constants(graph: Operation, module: IRModule, limit: int = FOLD_LIMIT) -> int:
    """Fold everything in a graph that is computed from constants, except from weights; return how many ops went.

    Results of more elements than `limit` stay, unless they repeat one element, up to 2^24 times. A weight is a constant
    whose elements are not in the text. A value computed from it may be larger than the weight, and a quantized weight
    would lose its form. Stored integers and booleans from which integers and booleans are computed, such as positions,
    are no weights.
    """
    known: dict[SSAValue, np.ndarray] = {}
    folded: list[Operation] = []
    for op in ops_inside(graph):
        if foldable(op, known, limit) and (results := evaluated(op, module, known)) is not None:
            known.update(zip(op.results, results, strict=True))
            folded.append(op)
    gone = set(folded)
    for op in folded:
        for result in op.results:
            if any(use.operation not in gone for use in result.uses):
                replace_uses(result, constant_for([op], result, known[result], module))
    for op in reversed(folded):
        assert op.parent is not None
        op.parent.erase_op(op)
    return len(folded)


def fold(op: Operation, module: IRModule) -> list[SSAValue]:
    """Replace an op by its constant results, and return them; none if the result is undefined."""
    if (results := evaluated(op, module, {})) is None:
        return []
    constants = [constant_for([op], result, array, module) for result, array in zip(op.results, results, strict=True)]
    replace_op(op, constants)
    return constants


def foldable(op: Operation, known: Container[SSAValue] = (), limit: int = FOLD_LIMIT) -> bool:
    """Whether an op can be folded.

    Args:
        op: the op.
        known: values that are computed already, besides constants.
        limit: the number of elements that a result may have, unless it repeats one element up to 2^24 times.
    """
    if not computes_alone(op):
        return False
    indices = all(map(_has_indices, op.results))
    if not all(
        operand in known or _is_in_the_text(operand, limit) or (indices and _is_stored(operand, limit))
        for operand in op.operands
    ):
        return False
    most = _REPEATED_LIMIT if op.has_trait(Repetition) and _elements(op.operands[0]) == 1 else limit
    return all(_elements(result) <= most for result in op.results)


def computes_alone(op: Operation, pure: Container[str] = ()) -> bool:
    """Whether an op only computes from its operands, and its results can be constants.

    Args:
        op: the op.
        pure: the graphs whose calls only compute, as `pure_graphs` finds them.
    """
    if not op.operands or op.has_trait(Unfolded) or op.regions or not isinstance(op, CoreaiOp):
        return False
    computes = is_removable(op) or (op.name == "coreai.invoke" and callee(op) in pure)
    return computes and all(map(can_be_stored, op.results))


def evaluated(op: Operation, module: IRModule, known: Mapping[SSAValue, np.ndarray]) -> list[np.ndarray] | None:
    """The results of an op; None if they are undefined (a division by zero), which is left to the run to report."""
    from patcomp.errors import EvaluationError
    from patcomp.evaluate.folding import evaluate_op  # needs PyTorch, which is imported only if something can be folded

    try:
        return evaluate_op(op, module, known)
    except EvaluationError:
        return None


def _is_in_the_text(value: SSAValue, limit: int) -> bool:
    """Whether a value is a constant whose elements the text has, not a weight."""
    if not is_constant(value) or _elements(value) > limit:
        return False
    maker = value.owner
    assert isinstance(maker, Operation)
    return isinstance(maker.properties["value"], DenseIntOrFPElementsAttr)


def _has_indices(value: SSAValue) -> bool:
    """Whether a tensor has integers of 32 or more bits, or booleans. Integers of fewer bits may be a compressed
    weight."""
    assert isinstance(value.type, TensorType)
    return element_name(value.type.element_type) in ("i1", "si32", "ui32", "si64", "ui64")


def _is_stored(value: SSAValue, limit: int) -> bool:
    """Whether a value is a stored table of indices, such as positions or a mask in a buffer."""
    return is_constant(value) and _elements(value) <= limit and _has_indices(value)


def _elements(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return math.prod(dim or 0 for dim in shape_of(value.type))


def can_be_stored(value: SSAValue) -> bool:
    """Whether a value can be a constant: its shape is static, and the evaluator has its elements in storage form.

    Uses of a value of a dynamic shape may rely on that.
    """
    if not isinstance(value.type, TensorType) or None in shape_of(value.type):
        return False
    element = element_name(value.type.element_type)
    return element in BIT_WIDTHS and element != "f4E2M1FN"  # the evaluator computes these as float32


def constant_for(
    ops: Sequence[Operation],
    result: SSAValue,
    array: np.ndarray,
    module: IRModule,
    *,
    step: str = "constant folding",
    key: str = "constant",
) -> SSAValue:
    """A constant in front of the last of some ops, with the elements of a result that they compute.

    Args:
        ops: the ops, for the place of the constant.
        result, array: the result, and its elements in storage form.
        module: gets the elements if they are many.
        step: the name of the step that folds.
        key: requested name of the elements among the weights.
    """
    block = ops[-1].parent
    assert block is not None
    assert isinstance(result.type, TensorType)
    attribute = constant_attribute(array, result.type.element_type, module.blobs, key)
    builder = Builder(block, before=ops[-1], blobs=module.blobs, location=fused(step, ops))
    return builder.insert(create_op("coreai.constant", (), [result.type], {"value": attribute})).results[0]

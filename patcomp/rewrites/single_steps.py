"""Loops that are known to run once, such as a scan of one step: their body takes their place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from patcomp.ir.constants import constant_values
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, shape_of
from patcomp.ir.xdsl import Block, InsertPoint, Operation, Region, Rewriter, SSAValue, ops_inside, replace_uses
from patcomp.rewrites.folding import evaluated, foldable

_LIMIT = 16
"""The elements of a value that is evaluated to count steps; counters have one."""

Known = dict[SSAValue, np.ndarray]


def inline_single_steps(graph: Operation, module: IRModule) -> int:
    """Replace each `coreai.while` of a graph that runs exactly once by its ops; return how many there were."""
    count = 0
    for op in reversed(ops_inside(graph)):  # inner loops first
        if op.name == "coreai.while" and _runs_once(op, module):
            _inline(op)
            count += 1
    return count


def _runs_once(loop: Operation, module: IRModule) -> bool:
    """Whether the condition holds for the initial values, and no longer for those after one step, on every run."""
    condition, body = (region.block for region in loop.regions)
    goes_on, given = _decided(condition, loop.operands, {}, module)
    if not goes_on:
        return False
    after = _evaluated(body, given, module)
    assert body.last_op is not None
    return _decided(condition, body.last_op.operands, after, module)[0] is False


def _decided(
    condition: Block, values: Iterable[SSAValue], known: Known, module: IRModule
) -> tuple[bool | None, list[np.ndarray | None]]:
    """Evaluate a loop's condition: whether the loop goes on (None if unknown), and the known values that the condition
    passes to the body."""
    made = _evaluated(condition, [_elements_of(value, known, module) for value in values], module)
    assert condition.last_op is not None
    flag, *given = (_elements_of(value, made, module) for value in condition.last_op.operands)
    return None if flag is None else bool(flag.all()), given


def _evaluated(block: Block, arguments: Iterable[np.ndarray | None], module: IRModule) -> Known:
    """The known values in a block, if some of its arguments are known."""
    pairs = zip(block.args, arguments, strict=True)
    known: Known = {argument: array for argument, array in pairs if array is not None}
    for op in block.ops:
        if foldable(op, known, _LIMIT) and (results := evaluated(op, module, known)) is not None:
            known.update(zip(op.results, results, strict=True))
    return known


def _elements_of(value: SSAValue, known: Mapping[SSAValue, np.ndarray], module: IRModule) -> np.ndarray | None:
    if value in known:
        return known[value]
    if not isinstance(value.type, TensorType) or math.prod(size or 0 for size in shape_of(value.type)) > _LIMIT:
        return None
    return constant_values(value, module.blobs)


def _inline(loop: Operation) -> None:
    """Put the ops of the condition, the body and the condition again in front of a loop, and drop the loop.

    The condition gives its values to the body, and at last to the users of the loop.
    """
    condition, body = loop.regions
    _, *given = _moved(condition.clone(), loop.operands, loop)
    _, *results = _moved(condition, _moved(body, given, loop), loop)
    for result, value in zip(loop.results, results, strict=True):
        replace_uses(result, value)
    assert loop.parent is not None
    loop.parent.erase_op(loop)


def _moved(region: Region, values: Iterable[SSAValue], loop: Operation) -> tuple[SSAValue, ...]:
    """Move the ops of a region in front of a loop, and return what its terminator gave."""
    terminator = region.block.last_op
    assert terminator is not None
    Rewriter.inline_block(region.block, InsertPoint.before(loop), tuple(values))
    given = tuple(terminator.operands)
    assert terminator.parent is not None
    terminator.parent.erase_op(terminator)
    return given

"""Optimize: constant folding, the clean-up rules, common subexpressions, dead ops; on `coreai` graphs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import is_removable, merge_equal_ops, remove_dead_ops
from patcomp.ir.constants import INLINE_LIMIT, constant_attribute, constant_values, is_constant
from patcomp.ir.dialect import CoreaiOp, create_op
from patcomp.ir.locations import UNKNOWN, fused
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, shape_of
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import (
    DenseIntOrFPElementsAttr,
    InsertPoint,
    Operation,
    Rewriter,
    SSAValue,
    ops_inside,
)
from patcomp.patterns import RuleSet, run
from patcomp.patterns.budget import Budget
from patcomp.patterns.statistics import Record, RuleStatistics, Statistics
from patcomp.rewrites.runtime.constant_expressions import expand_constant_expressions
from patcomp.rewrites.runtime.empty import allow_empty
from patcomp.rewrites.runtime.loops import own_values

_NOT_FOLDED = {
    "coreai.constant", "coreai.get_shape", "coreai.create_complex", "coreaix.copy_with_constraints",
    "coreai.dequantize", "coreai.blockwise_shift_scale",
}  # fmt: skip
"""Ops that are not folded: the runtime has no complex constants nor kernel buffers, and weights stay quantized."""


def optimize(module: IRModule, rules: RuleSet, *, strict: bool = True, budget: Budget | None = None) -> Statistics:
    """Optimize every graph of the module.

    Args:
        module, rules: the module, and the optimize rules.
        strict: whether an exception of a rule ends the stage, as in `patterns.run`.
        budget: how many rewrites are allowed; each function that is no rule counts as one rewrite of its name.
    """
    statistics = Statistics()

    def step(name: str, work: Callable[[], object]) -> bool:
        if budget is not None and budget.exhausted:
            return False
        if budget is not None:
            budget.spent.append(Record(name, UNKNOWN))
        return bool(work())

    for graph in module.graphs:
        dead = partial(_removing, "dead ops", graph, statistics, remove_dead_ops)
        equal = partial(_removing, "common subexpressions", graph, statistics, merge_equal_ops)
        fold_constants = partial(_fold, graph, module, statistics)
        step("dead ops", dead)
        step("constant folding", fold_constants)
        while step("known branches", partial(_take_known_branches, graph, module, statistics)):
            step("constant folding", fold_constants)  # of ops that use the result of a branch
        # before the rules, so that equal bounds of slices are the same value
        step("common subexpressions", equal)
        statistics.add(run(graph, rules.index, blobs=module.blobs, target=coreai, strict=strict, budget=budget))
        step("common subexpressions", equal)
        step("dead ops", dead)
    for name, work in (
        ("own values of loops", own_values),
        ("empty tensors", allow_empty),
        ("constant expressions", expand_constant_expressions),
    ):
        step(name, partial(work, module, statistics))
    return statistics


def _removing(name: str, graph: Operation, statistics: Statistics, work: Callable[[Operation], int]) -> None:
    """Run a function that removes ops and returns how many, and record them."""
    started = time.perf_counter()
    _record(statistics, name, work(graph), started)


def _record(statistics: Statistics, name: str, rewrites: int, started: float) -> None:
    """Record rewrites that no rule made, if there are any."""
    if rewrites:
        seconds = time.perf_counter() - started
        statistics.add(Statistics({name: RuleStatistics(rewrites, rewrites, seconds)}))


def _fold(graph: Operation, module: IRModule, statistics: Statistics) -> None:
    """Fold ops on small constants with the reference evaluator; results must be small or splats."""
    started, count = time.perf_counter(), 0
    for op in ops_inside(graph):
        if foldable(op):
            count += bool(fold(op, module))
    _record(statistics, "constant folding", count, started)


def _take_known_branches(graph: Operation, module: IRModule, statistics: Statistics) -> bool:
    """Inline the taken branch of each `coreai.if` with a constant condition; the runtime aborts on some of these."""
    started, count = time.perf_counter(), 0
    for op in ops_inside(graph):
        condition = constant_values(op.operands[0], module.blobs) if op.name == "coreai.if" else None
        if condition is None or op.parent is None:
            continue
        taken = op.regions[0 if condition.all() else 1].block
        terminator = taken.last_op
        assert terminator is not None
        Rewriter.inline_block(taken, InsertPoint.before(op))
        for result, value in zip(op.results, terminator.operands, strict=True):
            result.replace_all_uses_with(value)
        op.parent.erase_op(terminator)
        op.parent.erase_op(op)
        count += 1
    _record(statistics, "known branches", count, started)
    return bool(count)


def _small(type_: object, limit: int) -> bool:
    return isinstance(type_, TensorType) and math.prod(dim or 0 for dim in shape_of(type_)) < limit


def _is_small_constant(value: SSAValue) -> bool:
    """Whether a value is a constant of few elements that the text has, not a weight."""
    maker = value.owner
    if not isinstance(maker, Operation) or not is_constant(maker):
        return False
    return isinstance(maker.properties["value"], DenseIntOrFPElementsAttr) and _small(value.type, INLINE_LIMIT)


def foldable(op: Operation) -> bool:
    """Whether an op can be folded: its operands are small constants, and its results are small or splats."""
    if not isinstance(op, CoreaiOp) or op.name in _NOT_FOLDED or op.regions or not op.operands or not is_removable(op):
        return False
    if not all(map(_is_small_constant, op.operands)):
        return False
    if any(isinstance(result.type, TensorType) and None in shape_of(result.type) for result in op.results):
        return False  # a constant has a static shape, and uses may rely on the dynamic one
    if op.name in ("coreai.broadcast_to", "coreai.broadcast_in_dims", "coreai.tile") and _small(op.operands[0].type, 2):
        return True  # a repeated value costs one element at any size
    return all(_small(result.type, INLINE_LIMIT) for result in op.results)


def fold(op: Operation, module: IRModule) -> list[SSAValue]:
    """Replace an op by its constant results, and return them; none if the result is undefined."""
    from patcomp.errors import EvaluationError
    from patcomp.ir.evaluate import evaluate_op

    try:
        arrays = evaluate_op(op, module)
    except EvaluationError:
        return []  # an undefined result (a division by zero) stays for the run to report
    block = op.parent
    assert block is not None
    builder = Builder(block, before=op, blobs=module.blobs, location=fused("constant folding", [op]))
    constants: list[SSAValue] = []
    for result, array in zip(op.results, arrays, strict=True):
        assert isinstance(result.type, TensorType)
        attribute = constant_attribute(array, result.type.element_type, module.blobs)
        made = create_op("coreai.constant", (), [result.type], {"value": attribute})
        constants.append(builder.insert(made).results[0])
    replace_op(op, constants)
    return constants

"""Optimize: constant folding, the clean-up rules, common subexpressions, dead ops; on `coreai` graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from patcomp.ir import coreai
from patcomp.ir.cleanup import called_graphs, merge_equal_ops, pure_graphs, remove_dead_ops, remove_uncalled_graphs
from patcomp.ir.constants import constant_values
from patcomp.ir.locations import UNKNOWN
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import (
    InsertPoint,
    Operation,
    Rewriter,
    ops_inside,
    replace_uses,
)
from patcomp.patterns import RuleSet, run
from patcomp.patterns.budget import Budget
from patcomp.patterns.statistics import Record, RuleStatistics, Statistics
from patcomp.rewrites.folding import fold_constants
from patcomp.rewrites.runtime.branches import choose_outside_values
from patcomp.rewrites.runtime.conditions import carry_conditions
from patcomp.rewrites.runtime.constant_expressions import expand_constant_expressions
from patcomp.rewrites.runtime.empty import allow_empty
from patcomp.rewrites.runtime.invariants import compute_before_loops
from patcomp.rewrites.runtime.loops import own_values
from patcomp.rewrites.runtime.scatters import scatter_last
from patcomp.rewrites.single_steps import inline_single_steps
from patcomp.rewrites.state import drop_repeated_accesses


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

    called = called_graphs(module)
    pure = pure_graphs(module, called)
    for graph in module.graphs:
        dead = partial(_counted, "dead ops", statistics, partial(remove_dead_ops, graph, pure))
        equal = partial(_counted, "common subexpressions", statistics, partial(merge_equal_ops, graph, pure))
        fold = partial(_counted, "constant folding", statistics, partial(fold_constants, graph, module))
        step("dead ops", dead)
        step("common subexpressions", equal)  # so that a mask that each layer computes is folded and stored once
        folded = step("constant folding", fold)
        branches = partial(_counted, "known branches", statistics, partial(_take_known_branches, graph, module))
        loops = partial(_counted, "loops of one step", statistics, partial(inline_single_steps, graph, module))
        while any([step("known branches", branches), step("loops of one step", loops)]):
            folded = step("constant folding", fold) or folded  # of ops that use results of a branch, or a counter
        if folded:
            step("common subexpressions", equal)  # so that equal bounds of slices are the same value for the rules
        statistics.add(run(graph, rules.index, blobs=module.blobs, target=coreai, strict=strict, budget=budget))
        step("common subexpressions", equal)
        step("dead ops", dead)
    uncalled = partial(remove_uncalled_graphs, module, called)
    step("graphs without calls", partial(_counted, "graphs without calls", statistics, uncalled))
    for name, work in (
        ("repeated accesses of states", drop_repeated_accesses),
        ("carried conditions", carry_conditions),
        ("choices between values from outside", choose_outside_values),
        ("empty tensors", allow_empty),
        ("empty tensors", allow_empty),
        ("values computed before loops", compute_before_loops),
        ("own values of loops", own_values),
        ("values computed before scatters", scatter_last),
        ("constant expressions", expand_constant_expressions),
    ):
        step(name, partial(work, module, statistics))
    return statistics


def _counted(name: str, statistics: Statistics, work: Callable[[], int]) -> int:
    """Run a function that rewrites and returns how often, and record what no rule made."""
    started = time.perf_counter()
    if count := work():
        seconds = time.perf_counter() - started
        statistics.add(Statistics({name: RuleStatistics(count, count, seconds)}))
    return count


def _take_known_branches(graph: Operation, module: IRModule) -> int:
    """Inline the taken branch of each `coreai.if` with a constant condition, because the runtime aborts on some of
    them. Return the number of inlined branches."""
    count = 0
    for op in ops_inside(graph):
        condition = constant_values(op.operands[0], module.blobs) if op.name == "coreai.if" else None
        if condition is None or op.parent is None:
            continue
        taken = op.regions[0 if condition.all() else 1].block
        terminator = taken.last_op
        assert terminator is not None
        Rewriter.inline_block(taken, InsertPoint.before(op))
        for result, value in zip(op.results, terminator.operands, strict=True):
            replace_uses(result, value)
        op.parent.erase_op(terminator)
        op.parent.erase_op(op)
        count += 1
    return count

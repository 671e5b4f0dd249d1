"""Optimize: constant folding, the clean-up rules, common subexpressions, dead ops; on `coreai` graphs."""

from __future__ import annotations

from functools import partial

from patcomp.defects import mends
from patcomp.ir import coreai
from patcomp.ir.cleanup import called_graphs, merge_equal_ops, pure_graphs, remove_dead_ops, remove_uncalled_graphs
from patcomp.ir.constants import constant_values
from patcomp.ir.extents import MAY_BE_EMPTY
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import (
    InsertPoint,
    Operation,
    Rewriter,
    ops_inside,
    replace_uses,
)
from patcomp.patterns import RuleSet, run
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.folding import fold_constants
from patcomp.rewrites.options import Options
from patcomp.rewrites.single_steps import inline_single_steps
from patcomp.rewrites.state import drop_repeated_accesses


def optimize(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Optimize every graph of the module."""
    statistics = Statistics()
    step = partial(options.step, statistics)
    called = called_graphs(module)
    pure = pure_graphs(module, called)
    for graph in module.graphs:
        fold = partial(step, "constant folding", fold_constants, graph, module)
        equal = partial(step, "common subexpressions", merge_equal_ops, graph, pure)
        step("dead ops", remove_dead_ops, graph, pure)
        equal()  # so that a mask that each layer computes is folded and stored once
        folded = fold()
        while any(
            [
                step("known branches", _take_known_branches, graph, module),
                step("loops of one step", inline_single_steps, graph, module),
            ]
        ):
            folded = fold() or folded  # of ops that use results of a branch, or a counter
        if folded:
            equal()  # so that equal bounds of slices are the same value for the rules
        statistics.add(run(graph, rules.index, options.context(module, coreai)))
        equal()
        step("dead ops", remove_dead_ops, graph, pure)
    step("graphs without calls", remove_uncalled_graphs, module, called)
    step("repeated accesses of states", drop_repeated_accesses, module, statistics)
    for defect in mends(module, "optimize"):
        assert defect.mend is not None
        step(defect.name.replace("_", " "), defect.mend, module, statistics)
    for graph in module.graphs:
        graph.attributes.pop(MAY_BE_EMPTY, None)  # only a mend reads it, which may be off
    return statistics


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

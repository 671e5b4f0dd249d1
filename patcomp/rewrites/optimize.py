"""Optimize: constant folding, the clean-up rules, common subexpressions, dead ops; on `coreai` graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from patcomp.defects import mends_for
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
from patcomp.rewrites.folded_weights import fold_weights
from patcomp.rewrites.folding import fold_constants
from patcomp.rewrites.options import Options
from patcomp.rewrites.single_steps import inline_single_steps
from patcomp.rewrites.state import drop_repeated_accesses


@dataclass(frozen=True)
class Work:
    """What each step is given besides the graph, or the module."""

    module: IRModule
    rules: RuleSet
    options: Options
    statistics: Statistics
    called: Collection[str]
    """The graphs that were called before the first step."""
    pure: Collection[str]
    """Those of them that only compute."""

    def step(self, name: str, work: Callable[..., int | None], *arguments: Any) -> int:
        """Run a function that rewrites, and count under a name how often it did."""
        return self.options.step(self.statistics, name, work, *arguments)


def optimize(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Optimize every graph of the module."""
    called = called_graphs(module)
    work = Work(module, rules, options, Statistics(), called, pure_graphs(module, called))
    for graph in module.graphs:
        for of_graph in STEPS_OF_A_GRAPH:
            of_graph(work, graph)
    for of_module in STEPS_OF_THE_MODULE:
        of_module(work)
    return work.statistics


def _drop_dead(work: Work, graph: Operation) -> None:
    """Remove ops that nothing uses."""
    work.step("dead ops", remove_dead_ops, graph, work.pure)


def _merge_equal(work: Work, graph: Operation) -> None:
    """Let one op stand for all that compute the same."""
    work.step("common subexpressions", merge_equal_ops, graph, work.pure)


def _fold(work: Work, graph: Operation) -> None:
    """Compute what depends on constants alone."""
    work.step("constant folding", fold_constants, graph, work.module)


def _inline_known(work: Work, graph: Operation) -> None:
    """Branches that are known to be taken, and bodies of loops of one step, take the places of their ops."""
    while any(
        [
            work.step("known branches", _take_known_branches, graph, work.module),
            work.step("loops of one step", inline_single_steps, graph, work.module),
        ]
    ):
        _fold(work, graph)  # what uses results of a branch, or a counter


def _apply_rules(work: Work, graph: Operation) -> None:
    """Apply the clean-up rules of the catalog."""
    work.statistics.add(run(graph, work.rules.index, work.options.context(work.module, coreai)))


def _fold_weights(work: Work, graph: Operation) -> None:
    """Compute what depends on weights alone, where it takes their place."""
    work.step("weights computed once", fold_weights, graph, work.module, work.pure)


def _drop_uncalled(work: Work) -> None:
    """Remove the graphs that were called and are no longer."""
    work.step("graphs without calls", remove_uncalled_graphs, work.module, work.called)


def _drop_repeated_accesses(work: Work) -> None:
    """Read a state once, and do not write what was read."""
    work.step("repeated accesses of states", drop_repeated_accesses, work.module)


def _mend(work: Work) -> None:
    """Go around the defects of the toolchain, each in the order that its file states (`Defect.after`)."""
    for defect, mend in mends_for(work.module, "optimize"):
        work.step(defect.name.replace("_", " "), mend, work.module, work.statistics)
    for graph in work.module.graphs:
        graph.attributes.pop(MAY_BE_EMPTY, None)  # only a mend reads it, which may be off


STEPS_OF_A_GRAPH: tuple[Callable[[Work, Operation], None], ...] = (
    _drop_dead,  # a dead op that reads a value would keep rules from taking it; before or after the merge is the same
    _merge_equal,  # before folding, so that a mask that each layer computes is folded once
    _fold,  # before known branches, whose conditions are computed
    _inline_known,  # before the rules, whose patterns do not reach into branches
    _apply_rules,  # before the second merge: rules make ops equal
    _merge_equal,
    _fold_weights,  # after the merge: what computes a weight twice would seem to be two readers of it
    _drop_dead,  # last: of branches that were not taken, and of weights that nothing reads any more
)
"""The steps that each graph goes through before the next graph does, in order."""

STEPS_OF_THE_MODULE: tuple[Callable[[Work], None], ...] = (
    _drop_uncalled,  # after the graphs, which lose calls; before or after the next step is the same
    _drop_repeated_accesses,  # before the mends, which copy each read of a state that a branch uses
    _mend,  # last, so that nothing undoes a mend
)
"""The steps after those of the graphs, in order."""


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

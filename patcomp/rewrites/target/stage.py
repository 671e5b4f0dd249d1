"""The stage `target`: the rules of a target until none applies, then its steps in their order.

A step goes through a whole program, because what it does at one op depends on many others. It returns how many ops it
rewrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

from patcomp.errors import Problem
from patcomp.ir import coreai
from patcomp.ir.cleanup import called_graphs, merge_equal_ops, remove_dead_ops, remove_uncalled_graphs
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, shape_of
from patcomp.ir.xdsl import ops_inside
from patcomp.patterns import RuleSet, run
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.folding import fold_constants
from patcomp.rewrites.options import Options
from patcomp.rewrites.specialize import fix_sizes
from patcomp.rewrites.target.half import use_half_precision
from patcomp.rewrites.target.prepared_weights import store_prepared_weights
from patcomp.rewrites.target.transposes import carry_transposes
from patcomp.targets import Target, check_names

STEPS: Mapping[str, Callable[[IRModule], int]] = {
    "carry transposes": carry_transposes,
    "store prepared weights": store_prepared_weights,
    "store prepared weights once": partial(store_prepared_weights, once=True),
    "half precision": use_half_precision,
}
"""The steps by name."""


def usable_target(target: Target | None, rules: RuleSet, without: Collection[str]) -> Target | None:
    """A target without the rules that a converter leaves out.

    Raises:
        ValueError: the target names a rule or a step that does not exist.
    """
    if target is None:
        return None
    rules_left, omitted = (tuple(n for n in names if n not in without) for names in (target.rules, target.omitted))
    made = replace(target, rules=rules_left, omitted=omitted)
    check_names(made, rules.stage("target"), STEPS)
    return made


def retarget(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Fix sizes of a lowered program, in which composites are regions, and rewrite it for the target, in place.

    Raises:
        ValueError: the target names a rule or a step that does not exist.
        VerifyError: an op does not support the fixed sizes.
    """
    fix_sizes(module, options.fixed)
    statistics, target = Statistics(), options.target
    if target is None:
        return statistics
    check_names(target, rules, STEPS)
    called = called_graphs(module)
    chosen = rules.filter(target.takes)
    for graph in module.entry_graphs:
        fold_constants(graph, module)  # in the types of the model, before they are narrower
        merge_equal_ops(graph)
        statistics.add(run(graph, chosen.index, options.context(module, coreai)))
        fold_constants(graph, module)
        remove_dead_ops(graph)
    for name in target.steps:
        options.step(statistics, name, STEPS[name], module)
    for graph in module.graphs:
        remove_dead_ops(graph)
    remove_uncalled_graphs(module, called)
    return statistics


def sizes_of_data(module: IRModule, target: Target | None) -> Iterator[Problem]:
    """A warning if a program has sizes that only a run knows, and its target takes fixed sizes only."""
    if target is None or not target.wants.static_shapes:
        return
    ops = (op for graph in module.graphs for op in ops_inside(graph))
    if unknown := [op for op in ops if any(isinstance(t, TensorType) and None in shape_of(t) for t in op.result_types)]:
        yield problem_at(
            unknown[0],
            f"the target {target.name} takes fixed sizes only, and the sizes of {len(unknown)} values depend on data, "
            "first of this one",
            "change the model, so that all sizes follow from the sizes of its inputs",
        )

"""Recover: composites out of the graph of an unmodified model, and out of ops that export preserves."""

from __future__ import annotations

from patcomp.ir import coreai
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import dead_code
from patcomp.patterns import RuleSet, run
from patcomp.patterns.statistics import Statistics


def recover(module: IRModule, rules: RuleSet) -> Statistics:
    """Applies the recover rules to every graph; each match becomes a `patcomp.region` with a declaration."""
    statistics = Statistics()
    for graph in module.graphs:
        statistics.add(run(graph, rules.index, blobs=module.blobs, target=coreai))
        dead_code(graph.regions[0])
    return statistics

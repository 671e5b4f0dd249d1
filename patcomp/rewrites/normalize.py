"""Normalize: one spelling for what means the same, on which composite patterns are written once."""

from __future__ import annotations

from patcomp.ir import aten
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import dead_code
from patcomp.patterns import RuleSet, run
from patcomp.patterns.statistics import Statistics


def normalize(module: IRModule, rules: RuleSet) -> Statistics:
    """Applies the normalize rules to every graph until nothing changes, and drops what became dead."""
    statistics = Statistics()
    for graph in module.graphs:
        statistics.add(run(graph, rules.index, blobs=module.blobs, target=aten))
        dead_code(graph.regions[0])
    return statistics

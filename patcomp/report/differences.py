"""Two programs beside each other as plain data: their graphs, which op of one is which of the other, and the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from patcomp.ir.difference import GraphPair, difference, paired_graphs
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation
from patcomp.report.costs import OpNumbers, costs_of
from patcomp.report.snapshot import Tables, snapshot


def difference_data(
    names: tuple[str, str],
    modules: tuple[IRModule, IRModule],
    values: tuple[Mapping[str, object], Mapping[str, object]],
) -> dict[str, Any]:
    """The data of `difference_page`, whose arguments these are."""
    tables = Tables()
    first, second = map(OpNumbers, modules)
    pairs = paired_graphs(*modules)
    costs = [costs_of(module) for module in modules]
    return {
        "entrypoints": [],
        "stages": [
            {"name": name, "count": module.op_count(), "rules": [], "graphs": snapshot(module, tables), "seconds": None}
            for name, module in zip(names, modules, strict=True)
        ],
        "rules": {},
        "costs": costs,
        "audits": [],
        "target": "",
        "compression": None,
        "composites": [],
        "notes": [],
        "nearMisses": [],
        "watched": [],
        "verification": None,
        "difference": {
            "names": names,
            "totals": [_totals(*each) for each in zip(modules, costs, strict=True)],
            "graphs": _graph_numbers(pairs, modules),
            "pairs": [
                [first.of(mine), second.of(its)] for pair in pairs for mine, its in pair.ops.items()
            ],
            "lines": [
                [line.sign, line.text, _place(first, line.first), _place(second, line.second)]
                for pair in pairs
                for line in pair.lines
            ],
            "weights": difference(*modules, values).weights,
        },
        **tables.data(),
    }  # fmt: skip


def short_names(first: str, second: str) -> tuple[str, str]:
    """The shortest ends of two paths that differ: `a/x.aimodel` and `b/x.aimodel`; equal paths as they are."""
    ours, theirs = (re.split(r"(?<=/)(?=[^/])", name) for name in (first, second))
    for count in range(1, max(len(ours), len(theirs))):
        if ours[-count:] != theirs[-count:]:
            return "".join(ours[-count:]), "".join(theirs[-count:])
    return first, second


def _place(numbering: OpNumbers, op: Operation | None) -> list[int] | None:
    return None if op is None else numbering.of(op)


def _graph_numbers(pairs: list[GraphPair], modules: tuple[IRModule, IRModule]) -> list[list[int]]:
    """The numbers of the graphs that correspond."""
    numbers = [{graph: number for number, graph in enumerate(module.graphs)} for module in modules]
    return [
        [numbers[0][pair.first], numbers[1][pair.second]]  # type: ignore[index]
        for pair in pairs
        if pair.first is not None and pair.second is not None
    ]


def _totals(module: IRModule, costs: Mapping[str, Any]) -> dict[str, int]:
    return {
        "ops": module.op_count(),
        "weights": sum(weight[2] for weight in costs["weights"]),
        "multiply-adds": sum(row[3] for row in costs["work"]),
        "tensors, at most": max((peak[1] for peak in costs["peaks"]), default=0),
    }

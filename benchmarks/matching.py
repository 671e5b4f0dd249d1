"""Cost of matching, in microseconds an op: it should not depend on the number of rules.

    python -m benchmarks.matching [--layers 16]

The graph is a Llama after the normalize stage. The rules are 10, 100 and 500 of those of `benchmarks.user_rules`, none
of which matches, and then all recover rules of the catalog. For each number of rules: the time to build the index, the
automaton's states alone, and a run of the driver. A run with the catalog's rules rewrites the graph, so the run that is
measured is a second one, which finds nothing left.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.model import exported_llama
from benchmarks.user_rules import user_rules
from patcomp import TorchConverter, get_decomp_table
from patcomp.ir import coreai, parse_module
from patcomp.patterns import Index, run
from patterns_catalog import default_rules


def measured(work: Callable[[], Any], repeat: int = 5) -> float:
    """The shortest CPU time of some repetitions, in seconds."""
    times = []
    for _ in range(repeat):
        gc.collect()
        gc.disable()  # as in a conversion
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
        gc.enable()
    return min(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    warnings.filterwarnings("ignore", category=FutureWarning)
    exported = exported_llama(parser.parse_args().layers, get_decomp_table())
    text = TorchConverter().add_exported_program(exported).to_coreai().stages["normalize"]
    catalog = list(default_rules().stage("recover"))
    table = Table("rules", "ops", "states, us an op", "run, us an op", "build index, ms", "transitions")
    for rules in (*(list(user_rules(count)) for count in (10, 100, 500)), catalog):
        building = measured(lambda rules=rules: Index(rules), 1)
        index, module = Index(rules), parse_module(text)
        run(module, index, target=coreai)  # the automaton makes its states when they first occur
        ops = list(module.walk())

        def states(index: Index = index, ops: list[Any] = ops) -> None:
            sweep = index.sweep()
            for op in ops:
                sweep.visit(op)

        times = [measured(states), measured(lambda index=index, module=module: run(module, index, target=coreai))]
        costs = [f"{seconds / len(ops) * 1e6:.1f}" for seconds in times]
        table.add_row(str(len(rules)), str(len(ops)), *costs, f"{building * 1e3:.1f}", str(index.transitions))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

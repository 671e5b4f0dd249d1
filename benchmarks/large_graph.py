"""Cost of the recover stage on a large real graph, in microseconds an op, with few and with all of its rules.

    python -m benchmarks.large_graph [--ops 10000]

The graph is one block with the ops of several architectures, as they are after normalize, repeated until there are
enough. The first run over a fresh copy rewrites it, the second one finds nothing left and so costs matching alone.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
import warnings

from rich.console import Console
from rich.table import Table

from patcomp.ir import coreai, parse_module
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Block, SSAValue
from patcomp.patterns import Index, run
from patcomp.patterns.statistics import Statistics

MODELS = (("llama", "eager"), ("bert", "eager"), ("t5", "sdpa"), ("swin", "eager"), ("diffusion_block", "eager"))


def normalized(name: str, attention: str) -> str:
    """The text of an architecture after normalize."""
    from patcomp import TorchConverter
    from tests.models.architectures import build, export

    program = TorchConverter().add_exported_program(export(build(name, attention))).to_coreai()
    return program.stages["normalize"]


def repeated(texts: list[str], ops: int) -> Block:
    """One block with the ops of the main graphs of modules, again and again; every result is used."""
    made = Block()
    results: list[SSAValue] = []
    count = 0
    blocks = [IRModule(parse_module(text)).graph("main").regions[0].block for text in texts]
    while count < ops:
        for block in blocks:
            mapping: dict[SSAValue, SSAValue] = {
                argument: made.insert_arg(argument.type, len(made.args)) for argument in block.args
            }
            *body, terminator = block.ops
            made.add_ops([op.clone(value_mapper=mapping) for op in body])
            results += [mapping[operand] for operand in terminator.operands]
            count += len(body)
    made.add_op(type(terminator).create(operands=results, properties=terminator.properties))
    return made


def measured(block: Block, index: Index) -> tuple[Statistics, float]:
    """The statistics of a run and its seconds of CPU time."""
    gc.collect()
    gc.disable()  # as in a conversion
    started = time.process_time()
    statistics = run(block, index, target=coreai)
    seconds = time.process_time() - started
    gc.enable()
    return statistics, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=10000)
    wanted = parser.parse_args().ops
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    from patterns_catalog import default_rules

    rules = list(default_rules().stage("recover"))
    texts = [normalized(*model) for model in MODELS]
    table = Table(title=f"The recover stage on a graph of {', '.join(name for name, _ in MODELS)}, repeated")
    for heading in ("rules", "ops", "rewrites", "seconds", "us an op", "matching alone, us an op", "of 10 rules"):
        table.add_column(heading, justify="right")
    first = 0.0
    for count in (10, len(rules) // 2, len(rules)):
        block = repeated(texts, wanted)
        ops = sum(1 for _ in block.walk())
        index = Index(rules[:count])
        statistics, seconds = measured(block, index)
        left = sum(1 for _ in block.walk())  # with the bodies of composites
        alone = measured(block, index)[1] / left * 1e6
        first = first or alone
        costs = (f"{seconds:.2f}", f"{seconds / ops * 1e6:.1f}", f"{alone:.1f}", f"{alone / first:.2f}")
        table.add_row(str(count), str(ops), str(len(statistics.records)), *costs)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

"""Cost of matching, in microseconds an op, with 10, 100 and 500 rules: it should not depend on their number.

    python -m benchmarks.matching [--ops 8000]

First with the rules of the catalog on a real graph (a Llama with 16 layers, normalized), then with synthetic
ones. Three measures over one synthetic graph of transformer-like layers: the automaton's states alone, a run in
which no rule matches (every rule is a subgraph of the layers with one literal spoilt), and a run in which
the first ten rules match once in each layer.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable
from typing import Any

from patcomp.authoring import AtenSource, Targets
from patcomp.ir.builder import Builder
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.patterns import FunctionTable, Index, Rewrite, Rule, RuleSet, rule, run
from patcomp.patterns.driver import ops_inside

UNARY = ("relu", "sigmoid", "tanh", "exp", "rsqrt", "neg", "abs", "sin", "cos", "erf")
MATRIX = tensor((16, 64), "f32")


def _identity(x: Value, *, result_types: Any) -> Value:
    return aten_namespace.build("alias", [x], {}, result_types)


TABLE = FunctionTable("benchmark")
TABLE.define(_identity, "made")


def graph(ops: int) -> Block:
    """Layers of a norm, a gated product and an activation, each with a literal of its kind."""
    block = Block(arg_types=[MATRIX])
    with Builder(block):
        x = Value(block.args[0])
        layer = 0
        while sum(1 for _ in block.ops) < ops:
            for _ in range(20):
                x = _layer(x, layer)
                layer += 1
    return block


def _layer(x: Value, layer: int) -> Value:
    def op(name: str, *arguments: Any, **keywords: Any) -> Value:
        return aten_namespace.build(name, arguments, keywords, [MATRIX])

    unary = UNARY[layer % len(UNARY)]
    mean = op("mean.dim", op("pow", x, 2.0), dim=[-1], keepdim=True)
    normed = op("mul", x, op("rsqrt", op("add", mean, 1e-5)))
    gate = op(unary, op("mul", normed, 0.5))
    permuted = op("permute", gate, dims=[0, 1])
    return op("add", x, op("mul", permuted, op("sigmoid", op("sub", gate, 1.0))))


def matching(position: int) -> Rule:
    """A rule that matches in every tenth layer."""

    def synthetic(a: AtenSource, c: Targets, x: Any) -> Rewrite:
        return Rewrite(getattr(a, UNARY[position])(x * 0.5), to=c.made(x))

    return rule(name=f"matching_{position}", target=TABLE)(synthetic)


def near_miss(seed: int) -> Rule:
    """A rule out of the ops of a layer that matches nowhere: a literal at its bottom is wrong."""
    choose = random.Random(seed)

    def synthetic(a: AtenSource, c: Targets, x: Any, y: Any) -> Rewrite:
        spoilt = 3.0 + seed
        bottom = choose.choice(
            [
                lambda: a.mean(a.pow(x, spoilt), dim=[-1], keepdim=True, dtype=None),
                lambda: a.mean(a.pow(x, 2.0), dim=[seed + 1], keepdim=True, dtype=None),
                lambda: x * spoilt,
                lambda: a.permute(getattr(a, choose.choice(UNARY))(x * 0.5), dims=[0, seed + 2]),
            ]
        )()
        node = bottom
        for _ in range(choose.randrange(2, 6)):
            step: Callable[[Any], Any] = choose.choice(
                [
                    lambda n: getattr(a, choose.choice(UNARY))(n),
                    lambda n: n * y,
                    lambda n: n + y,
                    lambda n: x * a.rsqrt(n + 1e-5),
                ]
            )
            node = step(node)
        return Rewrite(node * y, to=c.made(x))

    return rule(name=f"near_miss_{seed}", target=TABLE)(synthetic)


def measured(work: Callable[[], Any], ops: int, repeat: int = 5) -> float:
    """The best time of a piece of work, in microseconds an op."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        gc.disable()
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
        gc.enable()
    return best / ops * 1e6


def catalog_rules() -> None:
    """Matching alone with 10, 100 and all rules of the catalog, on a real graph."""
    from benchmarks.model import exported_llama
    from patcomp import TorchConverter, get_decomp_table
    from patcomp.ir import parse_module
    from patterns_catalog import default_rules

    exported = exported_llama(16, get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    ops = list(ops_inside(parse_module(program.stages["normalize"])))
    rules = list(default_rules())
    # declarative rules first, which are the ones with patterns to match
    rules.sort(key=lambda each: not each.is_declarative)
    print(f"catalog: {len(rules)} rules on {len(ops)} ops of a real graph; microseconds an op")
    for count in (10, 100, len(rules)):
        index = Index(rules[:count])

        def states(index: Index = index) -> None:
            sweep = index.sweep()
            for op in ops:
                sweep.visit(op)

        states()
        print(f"{count:>6} {measured(states, len(ops)):8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=8000)
    wanted = parser.parse_args().ops
    catalog_rules()
    block = graph(wanted)
    ops = sum(1 for _ in block.ops)
    print(f"{ops} ops; microseconds an op")
    print(f"{'rules':>6} {'states':>8} {'no match':>9} {'matching':>9}  {'build index ms':>14} {'transitions':>11}")
    for count in (10, 100, 500):
        misses = [near_miss(seed) for seed in range(count)]
        started = time.perf_counter()
        index = Index(misses)
        building = (time.perf_counter() - started) * 1e3
        sweep_ops = list(ops_inside(block))

        def states(index: Index = index, sweep_ops: list[Any] = sweep_ops) -> None:
            sweep = index.sweep()
            for op in sweep_ops:
                sweep.visit(op)

        states()
        hits = Index(RuleSet([*map(matching, range(10)), *misses[: count - 10]]))
        run(graph(200), hits)  # the automaton's tables are made once a process
        once = graph(wanted)
        print(
            f"{count:>6} {measured(states, ops):8.2f} {measured(lambda index=index: run(block, index), ops):9.2f} "
            f"{measured(lambda hits=hits, once=once: run(once, hits), ops, 1):9.2f}  {building:14.1f} "
            f"{index.transitions:11}"
        )


if __name__ == "__main__":
    main()

"""What 500 rules of a user's cost the conversion of a Llama that none of them matches.

    python -m benchmarks.user_rules [--layers 16] [--rounds 15]

The rules are activations, norms and gates that differ in a literal or an op, as a generated catalog has them; their
roots and most of their ops occur in every layer. Conversions with and without them alternate.
"""

from __future__ import annotations

import argparse
import gc
import time
from itertools import product
from statistics import median
from typing import Any

from patcomp import TorchConverter, get_decomp_table
from patcomp.authoring import AtenSource, Coreai, Targets
from patcomp.ir.composite import composite
from patcomp.patterns import Attr, Capture, Const, FunctionTable, Rewrite, Rule, RuleSet, rule

TABLE = FunctionTable("user rules")
UNARY = ("sigmoid", "tanh", "erf", "exp", "relu", "sin", "cos", "sqrt", "rsqrt", "abs")


@TABLE.define
@composite("made_up", inputs=("input",))
def made_up(c: Coreai, x: Any) -> Any:
    "x"
    return x


def activation(number: int, function: str) -> Rule:
    """x * f(x * factor + offset)"""

    def declared(a: AtenSource, c: Targets, x: Capture, offset: Const) -> Rewrite:
        inner = getattr(a, function)(x * (1.5 + number) + offset)
        return Rewrite(x * inner, to=c.made_up(x))

    return rule(name=f"activation {number} of {function}", target=TABLE)(declared)


def norm(number: int, function: str) -> Rule:
    """x * rsqrt(f(mean(x ** power)) + eps) * w"""

    def declared(a: AtenSource, c: Targets, x: Capture, w: Capture, eps: Const, axis: Attr) -> Rewrite:
        mean = a.op("mean.dim", a.pow(x, 3.0 + number), dim=[axis], keepdim=True, dtype=None)
        return Rewrite(x * a.rsqrt(getattr(a, function)(mean) + eps) * w, to=c.made_up(x), where=[w.rank == 1])

    return rule(name=f"norm {number} of {function}", target=TABLE)(declared)


def gate(number: int, function: str) -> Rule:
    """f(view(x @ w) * factor) * view(x @ v)"""

    def declared(a: AtenSource, c: Targets, x: Capture, w: Capture, v: Capture, size: Attr) -> Rewrite:
        gated = getattr(a, function)(a.view(a.mm(x, w), size) * (0.5 + number))
        return Rewrite(gated * a.view(a.mm(x, v), size), to=c.made_up(x))

    return rule(name=f"gate {number} of {function}", target=TABLE)(declared)


def residual(number: int, function: str) -> Rule:
    """x + f(y) * factor"""

    def declared(a: AtenSource, c: Targets, x: Capture, y: Capture) -> Rewrite:
        return Rewrite(x + getattr(a, function)(y) * (0.1 + number), to=c.made_up(x))

    return rule(name=f"residual {number} of {function}", target=TABLE)(declared)


def user_rules(count: int = 500) -> RuleSet:
    """So many different rules."""
    kinds = product(range(count), UNARY, (activation, norm, gate, residual))
    return RuleSet(make(number, function) for (number, function, make), _ in zip(kinds, range(count), strict=False))


def seconds(exported: Any, catalog: list[RuleSet]) -> float:
    """The processor time of one conversion, from a new converter to the program."""
    gc.collect()  # what the conversion before left
    started = time.process_time()
    TorchConverter(catalog=catalog).add_exported_program(exported).to_coreai()
    return time.process_time() - started


def main() -> None:
    """Print the times and their ratio."""
    from benchmarks.model import exported_llama

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rules", type=int, default=500)
    options = parser.parse_args()
    exported = exported_llama(options.layers, get_decomp_table())
    catalog = user_rules(options.rules)
    first = [seconds(exported, given) for given in ([], [catalog])]
    print(f"first conversion, which makes the indexes: {first[0]:.3f} s, with {len(catalog)} rules {first[1]:.3f} s")
    times = [[seconds(exported, given) for given in ([], [catalog])] for _ in range(options.rounds)]
    without, with_rules = (min(column) for column in zip(*times, strict=True))
    ratio = median(b / a - 1 for a, b in times)
    print(f"best of {options.rounds}: {without:.3f} s, with them {with_rules:.3f} s; median of ratios: {ratio:+.1%}")
    print("rounds:", ", ".join(f"{b / a - 1:+.1%}" for a, b in times))


if __name__ == "__main__":
    main()

"""Recover rules of a made-up catalog: they match no model, but their roots and most of their ops occur in every layer.

They are activations, norms and gates that differ in a literal or an op, as those of a generated catalog do.
"""

from __future__ import annotations

from functools import cache
from itertools import islice, product
from typing import Any

from patcomp.authoring import AtenSource, Coreai, Targets
from patcomp.ir.composite import composite
from patcomp.patterns import Attr, Capture, CompositeTable, Const, Rewrite, Rule, RuleSet, rule

TABLE = CompositeTable("made-up rules")
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

    return rule(name=f"activation {number} of {function}", into=TABLE)(declared)


def norm(number: int, function: str) -> Rule:
    """x * rsqrt(f(mean(x ** power)) + eps) * w"""

    def declared(a: AtenSource, c: Targets, x: Capture, w: Capture, eps: Const, axis: Attr) -> Rewrite:
        mean = a.op("mean.dim", a.pow(x, 3.0 + number), dim=[axis], keepdim=True, dtype=None)
        return Rewrite(x * a.rsqrt(getattr(a, function)(mean) + eps) * w, to=c.made_up(x), where=[w.rank == 1])

    return rule(name=f"norm {number} of {function}", into=TABLE)(declared)


def gate(number: int, function: str) -> Rule:
    """f(view(x @ w) * factor) * view(x @ v)"""

    def declared(a: AtenSource, c: Targets, x: Capture, w: Capture, v: Capture, size: Attr) -> Rewrite:
        gated = getattr(a, function)(a.view(a.mm(x, w), size) * (0.5 + number))
        return Rewrite(gated * a.view(a.mm(x, v), size), to=c.made_up(x))

    return rule(name=f"gate {number} of {function}", into=TABLE)(declared)


def residual(number: int, function: str) -> Rule:
    """x + f(y) * factor"""

    def declared(a: AtenSource, c: Targets, x: Capture, y: Capture) -> Rewrite:
        return Rewrite(x + getattr(a, function)(y) * (0.1 + number), to=c.made_up(x))

    return rule(name=f"residual {number} of {function}", into=TABLE)(declared)


@cache
def made_up_rules(count: int) -> RuleSet:
    """So many different rules."""
    kinds = product(range(count), UNARY, (activation, norm, gate, residual))
    return RuleSet(make(number, function) for number, function, make in islice(kinds, count))

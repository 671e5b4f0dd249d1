"""A formula's refusal is remembered for ops with equal types, properties and constants, if nothing else decides it."""

from __future__ import annotations

from typing import Any

import pytest

from patcomp.ir import IRModule, Value
from patcomp.ir import aten as a
from patcomp.ir import coreai as c
from patcomp.patterns import RuleSet, formula, run
from patcomp.patterns.conditions import condition
from patcomp.patterns.context import Context
from patcomp.patterns.index import Index
from patcomp.patterns.statistics import RuleStatistics
from tests.helpers.programs import program

XY = {"x": "2x3xf32", "y": "2x3xf32"}


@condition("{x} is computed by exp")
def is_exp(x: Value) -> bool:
    return x.made_by("coreai.exp") is not None


@condition("{x} is read once")
def is_private(x: Value) -> bool:
    return x.is_read_once


@condition("{x} is {y}")
def is_same(x: Value, y: Value) -> bool:
    return x == y


def sub(where: Any) -> Any:
    """A rule that replaces `self - other` by `self`, under conditions."""
    return formula(
        "normalize", "aten.sub.Tensor", name="sub", where=where, ignored={"alpha": "it is 1"}, examples=[],
    )(lambda c, self, other: self)  # fmt: skip


def two(first: Any, second: Any) -> Any:
    """A program with two subtractions."""

    def body(x: Value, y: Value) -> Value:
        one = a.sub.Tensor(x.type, *first(x, y), alpha=1)
        other = a.sub.Tensor(x.type, *second(x, y), alpha=1)
        return a.mul.Tensor(x.type, one, other)

    return body


def tries(rule: Any, body: Any) -> tuple[int, int]:
    """How often a rule was tried, and rewrote, in the second of two equal programs."""
    index = Index(RuleSet([rule]))
    for _ in range(2):
        module: IRModule = program(XY, body)
        statistics = run(module.graph("main"), index, Context(module.blobs, c))
    found = statistics.rules.get("sub", RuleStatistics())
    return found.tries, found.rewrites


def exps(x: Value, y: Value) -> tuple[Value, Value]:
    return c.exp(x), y


def inputs(x: Value, y: Value) -> tuple[Value, Value]:
    return x, y


def same(x: Value, y: Value) -> tuple[Value, Value]:
    return x, x


# where an op around decides, the op that stays is tried again in the second sweep
CASES: dict[str, tuple[Any, Any, tuple[int, int]]] = {
    "types": (lambda self: [self.rank == 3], two(inputs, inputs), (0, 0)),
    "types that hold": (lambda self: [self.rank == 2], two(inputs, same), (2, 2)),
    "equal operands": (lambda self, other: [is_same(self, other)], two(inputs, same), (1, 1)),
    "what computes an operand": (lambda self: [is_exp(self)], two(exps, inputs), (3, 1)),
    "other readers": (lambda self: [is_private(self)], two(inputs, exps), (3, 1)),
    "types after what is around": (lambda self: [is_exp(self), self.rank == 3], two(exps, inputs), (0, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_tries(case: str) -> None:
    where, body, expected = CASES[case]
    assert tries(sub(where), body) == expected


def test_a_constant_decides() -> None:
    def body(x: Value, y: Value) -> Value:
        ones, twos = c.constant([1.0, 1.0, 1.0]), c.constant([1.0, 2.0, 2.0])
        return a.mul.Tensor(x.type, a.sub.Tensor(x.type, x, ones, alpha=1), a.sub.Tensor(x.type, y, twos, alpha=1))

    @condition("{x} is one number")
    def is_uniform(x: Value) -> bool:
        return x.uniform is not None

    assert tries(sub(lambda other: [is_uniform(other)]), body) == (1, 1)

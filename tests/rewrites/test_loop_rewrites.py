"""Loops of one step, what is computed before loops, and which branches are merged: small programs, no runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.defects.known.merged_branches import are_merged, count_ops, has_open_result
from patcomp.defects.known.repeated_in_loops import compute_before_loops
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, Value
from patcomp.ir import coreai as c
from patcomp.ir.types import TOKEN, is_open
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Operation
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.single_steps import inline_single_steps
from tests.evaluate.loop_programs import loop
from tests.helpers.programs import program

GIVEN = {"x": torch.tensor([0.5, -1.0]), "n": torch.tensor(1, dtype=torch.int32)}


def all_of(module: IRModule, name: str) -> list[Operation]:
    return [op for op in module.op.walk() if op.name == name]


def of_inputs(body: Callable[[Value, Value], list[Value]]) -> IRModule:
    return program({"x": "2xf32", "n": "si32"}, body)


def assert_same_numbers(module: IRModule, rewrite: Callable[[], Any]) -> Any:
    """Rewrite a module, whose numbers stay the same; what the rewrite returns."""
    before = evaluate(module, GIVEN)
    found = rewrite()
    verify(module, finished=False)
    torch.testing.assert_close(evaluate(module, GIVEN), before)
    return found


# ---- loops of one step ---------------------------------------------------------------------------


def counted(
    x: Value, *, start: Any = 0, limit: Any = 1, step: Any = 1, elements: int = 1, y: Value | None = None
) -> list[Value]:
    """Two values that are exchanged and changed as long as the largest of some counters is below a limit."""
    start = start if isinstance(start, Value) else c.constant(np.full(elements, start, np.int32), "si32")

    def goes_on(i: Value, *_: Value) -> Value:
        return c.broadcasting_greater(limit, c.reshape(c.reduce_max(i, [0]), []))  # type: ignore[no-any-return]

    def body(i: Value, a: Value, b: Value) -> list[Value]:
        return [c.broadcasting_add(i, step), c.sin(b), c.cos(a)]

    return c.while_([start, x, x if y is None else y], goes_on, body)  # type: ignore[no-any-return]


def limited(x: Value, elements: int) -> list[Value]:
    """A loop up to the largest of some numbers, which it carries."""

    def goes_on(i: Value, table: Value, _: Value) -> Value:
        return c.broadcasting_greater(c.reshape(c.reduce_max(table, [0]), []), i)  # type: ignore[no-any-return]

    table = c.constant(np.ones(elements, np.int32), "si32")
    return c.while_([c.constant(0), table, x], goes_on, lambda i, t, a: [c.broadcasting_add(i, 1), t, c.sin(a)])  # type: ignore[no-any-return]


SINGLE: dict[str, tuple[Callable[[Value, Value], list[Value]], int]] = {
    "one step": (lambda x, n: counted(x), 1),
    "one long step": (lambda x, n: counted(x, start=3, limit=9, step=6), 1),
    "two steps": (lambda x, n: counted(x, limit=2), 0),
    "no step": (lambda x, n: counted(x, start=1), 0),
    "a start of the data": (lambda x, n: counted(x, start=c.reshape(n, [1]), limit=2), 0),
    "a limit of the data": (lambda x, n: counted(x, limit=n), 0),
    "a step of the data": (lambda x, n: counted(x, step=n), 0),
    "as many counters as are looked at": (lambda x, n: counted(x, elements=16), 1),
    "too many counters": (lambda x, n: counted(x, elements=17), 0),
    "a limit out of few numbers": (lambda x, n: limited(x, 16)[2:], 1),
    "a limit out of many numbers": (lambda x, n: limited(x, 17)[2:], 0),
    "two loops": (lambda x, n: counted(counted(x)[1]), 2),
    "in a loop": (lambda x, n: loop(3, [x], lambda a: [counted(a)[1]]), 1),
    "in a loop of one step": (lambda x, n: loop(1, [x], lambda a: [counted(a)[2]]), 2),
    "a loop in a loop of one step": (lambda x, n: loop(1, [x], lambda a: loop(2, [a], lambda b: [c.sin(b)])), 1),
}


@pytest.mark.parametrize("name", SINGLE)
def test_loops_of_one_step(name: str) -> None:
    body, inlined = SINGLE[name]
    module = of_inputs(body)
    loops = len(all_of(module, "coreai.while"))
    assert assert_same_numbers(module, lambda: inline_single_steps(module.graph("main"), module)) == inlined
    assert len(all_of(module, "coreai.while")) == loops - inlined


# ---- what is computed before loops ---------------------------------------------------------------


def chosen(x: Value, a: Value) -> Value:
    condition = c.broadcasting_greater(c.reshape(c.reduce_max(x, [0]), []), 0.0)
    return c.if_(condition, lambda: [c.sin(x)], lambda: [c.cos(a)])[0]  # type: ignore[no-any-return]


INVARIANT: dict[str, tuple[Callable[[Value, Value], Any], list[str], list[str]]] = {
    "an op": (lambda x, a: c.broadcasting_mul(a, c.exp(x)), ["exp"], []),
    "ops": (lambda x, a: c.broadcasting_mul(a, c.sin(c.exp(x))), ["exp", "sin"], []),
    "with a constant": (lambda x, a: c.broadcasting_mul(a, c.reverse(x, [0])), ["reverse"], []),
    "of the step": (lambda x, a: c.broadcasting_mul(c.exp(a), x), [], ["exp"]),
    "of both": (lambda x, a: c.exp(c.broadcasting_mul(a, x)), [], ["exp"]),
    "of a constant": (lambda x, a: c.broadcasting_mul(a, c.exp(c.constant([1.0, 2.0]))), [], ["exp"]),
    "a branch": (lambda x, a: chosen(x, a), ["reduce_max"], ["if", "sin", "cos"]),
}
"""A step, by the value from outside and what it is given; ops that are computed before, and those that stay."""


@pytest.mark.parametrize("name", INVARIANT)
def test_what_is_computed_before_a_loop(name: str) -> None:
    step, before, inside = INVARIANT[name]
    module, statistics = of_inputs(lambda x, n: loop(2, [x], lambda a: [step(x, a)])), Statistics()
    assert_same_numbers(module, lambda: compute_before_loops(module, statistics))
    (found,) = all_of(module, "coreai.while")
    names = {op.name.removeprefix("coreai.") for op in found.walk()}
    assert not names & set(before)
    assert names >= set(inside)
    assert statistics.fired == ({"computed before a loop": 1} if before else {})


def test_a_condition_computes_before_a_loop_and_equal_ops_are_merged() -> None:
    def body(x: Value, n: Value) -> list[Value]:
        largest = lambda: c.reshape(c.reduce_max(c.exp(x), [0]), [])  # noqa: E731
        below = lambda a: c.broadcasting_greater(largest(), c.reshape(c.reduce_max(a, [0]), []))  # noqa: E731
        (result,) = c.while_([x], below, lambda a: [c.broadcasting_add(a, c.exp(x))])
        return [result, c.exp(x)]

    module = of_inputs(body)
    assert len(all_of(module, "coreai.exp")) == 3
    assert_same_numbers(module, lambda: compute_before_loops(module, Statistics()))
    (exp,) = all_of(module, "coreai.exp")
    (found,) = all_of(module, "coreai.while")
    assert exp.parent is found.parent
    assert [op.name for op in found.walk()].count("coreai.reduce_max") == 1


def test_values_leave_all_loops_around_them() -> None:
    module = of_inputs(
        lambda x, n: loop(2, [x], lambda a: loop(2, [a], lambda b: [c.broadcasting_mul(b, c.exp(x))])),
    )
    assert_same_numbers(module, lambda: compute_before_loops(module, Statistics()))
    (exp,) = all_of(module, "coreai.exp")
    assert exp.parent is module.graph("main").regions[0].block


# ---- branches that are merged --------------------------------------------------------------------

PAIRS: dict[str, tuple[Callable[[Value], Any], Callable[[Value], Any], bool]] = {
    "of other numbers": (lambda x: c.broadcasting_mul(x, 2.0), lambda x: c.broadcasting_mul(x, 3.0), True),
    "of other ops": (lambda x: c.broadcasting_mul(x, 2.0), lambda x: c.broadcasting_add(x, 3.0), False),
    "of another order": (lambda x: c.sin(c.cos(x)), lambda x: c.cos(c.sin(x)), False),
    "of other options": (lambda x: c.gelu(x, approximate="tanh"), lambda x: c.gelu(x, approximate="none"), False),
    "of other types": (
        lambda x: c.cast(c.cast(x, "f16"), "f32"),
        lambda x: c.cast(c.cast(x, "bf16"), "f32"),
        False,
    ),
    "of another length": (lambda x: c.sin(x), lambda x: c.sin(c.sin(x)), False),
}


@pytest.mark.parametrize("type_", ["?x4xf32", "2x4xf32"])
@pytest.mark.parametrize("name", PAIRS)
def test_branches_of_the_same_ops(name: str, type_: str) -> None:
    first, second, same = PAIRS[name]

    def body(x: Value, flag: Value) -> Any:
        return c.if_(flag, lambda: [c.constant(1.0), first(x)], lambda: [c.constant(2.0), second(x)])

    (branches,) = all_of(program({"x": type_, "flag": "i1"}, body), "coreai.if")
    assert has_open_result(branches) == ("?" in type_)
    assert are_merged(branches) == (same and "?" in type_)


def test_a_token_is_not_open() -> None:
    assert not is_open(TOKEN)


def test_the_ops_of_a_branch() -> None:
    def body(x: Value, flag: Value) -> Any:
        def nested() -> list[Value]:
            return c.if_(flag, lambda: [c.sin(x)], lambda: [c.broadcasting_mul(x, 2.0)])  # type: ignore[no-any-return]

        return c.if_(flag, lambda: [c.sin(x)], nested)

    module = program({"x": "?x4xf32", "flag": "i1"}, body)
    outer = next(op for op in module.graph("main").regions[0].block.ops if op.name == "coreai.if")
    assert [count_ops(region) for region in outer.regions] == [2, 6]

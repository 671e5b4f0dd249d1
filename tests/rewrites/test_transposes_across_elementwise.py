"""Transposes that cancel across elementwise ops: what is left, and that no bit changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules
from tests.helpers.programs import program

RULES = default_rules().stage("optimize")
Body = Callable[[Value, Value, Value], Value]
ADD, MUL = "decomposable.broadcasting_add", "decomposable.broadcasting_mul"


def last(x: Value) -> Value:
    return coreai.transpose(x, [0, 2, 3, 1])


def first(x: Value) -> Value:
    return coreai.transpose(x, [0, 3, 1, 2])


def shared(x: Value, y: Value, row: Value) -> Value:
    middle = coreai.relu(last(x))
    return coreai.broadcasting_add(first(middle), coreai.reshape(middle, [2, 3, 4, 5]))


def chain(x: Value) -> Value:
    value = last(x)
    for _ in range(7):
        value = coreai.tanh(value)
    return first(value)


FIRES: dict[str, tuple[Body, list[str]]] = {
    "one op": (lambda x, y, row: first(coreai.relu(last(x))), ["relu"]),
    "two branches": (lambda x, y, row: first(coreai.broadcasting_mul(coreai.tanh(last(x)), last(x))), ["tanh", MUL]),
    "another operand": (
        lambda x, y, row: first(coreai.broadcasting_add(coreai.relu(last(x)), y)), ["relu", "transpose", ADD],
    ),
    "a line": (
        lambda x, y, row: first(coreai.broadcasting_mul(coreai.broadcasting_add(last(x), row), 0.5)),
        ["reshape", ADD, MUL],
    ),
    "the first has other users": (
        lambda x, y, row: coreai.concat(0, [
            first(coreai.relu(last(x))), coreai.reshape(coreai.tanh(last(x)), [2, 3, 4, 5])]),
        ["transpose", "relu", "tanh", "reshape", "concat"],
    ),
    "another type": (lambda x, y, row: first(coreai.cast(coreai.cast(last(x), "f16"), "f32")), ["cast", "cast"]),
}  # fmt: skip
"""The program of x (2x3x4x5), y (2x4x5x3) and a row (3), and the ops that are left."""

STAYS: dict[str, tuple[Body, list[str]]] = {
    "no transpose before": (lambda x, y, row: first(coreai.relu(y)), ["relu", "transpose"]),
    "another order": (
        lambda x, y, row: last(coreai.broadcasting_add(last(x), y)), ["transpose", ADD, "transpose"],
    ),
    "as many": (
        lambda x, y, row: first(coreai.broadcasting_add(coreai.broadcasting_add(last(x), y), coreai.tanh(y))),
        ["transpose", ADD, "tanh", ADD, "transpose"],
    ),
    "other users": (shared, ["transpose", "relu", "transpose", "reshape", ADD]),
    "a sum between": (
        lambda x, y, row: first(coreai.reduce_sum(last(x), [3])), ["transpose", "reduce_sum", "reshape"],
    ),
    "too far": (lambda x, y, row: chain(x), ["transpose", *["tanh"] * 7, "transpose"]),
}  # fmt: skip


@pytest.mark.parametrize(("case", "fires"), [*((name, True) for name in FIRES), *((name, False) for name in STAYS)])
def test_transposes(case: str, fires: bool, native: Native) -> None:
    body, left = (FIRES if fires else STAYS)[case]
    types = {"x": "2x3x4x5xf32", "y": "2x4x5x3xf32", "row": "3xf32"}
    before, after = program(types, body), program(types, body)
    fired = optimize(after, RULES, Options()).fired
    verify(after, runtime=True)
    names = [op.name.removeprefix("coreai.") for op in after.graph("main").regions[0].block.ops]
    assert [name for name in names if name not in ("constant", "output")] == left
    assert ("transposes_across_elementwise" in fired) == fires
    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 3, 4, 5), "y": torch.randn(2, 4, 5, 3), "row": torch.randn(3)}
    inputs["x"].view(-1)[:5] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 0.0])
    for run in (evaluate, native.run):
        wanted, made = (torch.as_tensor(run(module, inputs)["y0"]) for module in (before, after))
        torch.testing.assert_close(made, wanted, rtol=0, atol=0, equal_nan=True)

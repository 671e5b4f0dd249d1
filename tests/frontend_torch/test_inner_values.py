"""The values inside a program beside those of the exported program, on graphs whose values are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from patcomp.errors import EvaluationError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.twin import Twin, Wider
from patcomp.evaluate.verification import OutputError
from patcomp.frontend_torch.verification.values import ValueComparison
from patcomp.ir import Value, coreai
from patcomp.ir.locations import Origin
from patcomp.ir.xdsl import ops_inside
from tests.helpers.programs import program

ONES = torch.ones(2)


class Played(ValueComparison):
    """An exported program whose nodes have given values, and a program whose values have given names."""

    def __init__(self, exported: dict[str, Any], made: dict[str, Any], tolerance: float | None = None) -> None:
        graph = Graph()
        x = graph.placeholder("x")
        x.meta["val"] = ONES
        for name, value in exported.items():
            node = graph.call_function(torch.neg, (x,), name=name)
            node.meta |= {"val": value, "nn_module_stack": {"m": (f"layers.{name}", torch.nn.Module)}}
        graph.output(tuple(graph.nodes))
        item: Any = SimpleNamespace(expansions={}, name="main", program=SimpleNamespace(graph=graph))
        super().__init__(item, None, None, {}, tolerance)  # type: ignore[arg-type]
        self.exported, self.made = {"x": ONES, **exported}, made
        self.wanted: Collection[str] = ()

    def run_export(self, visit: Callable[[Node, Any], object], wider: Wider | None = None) -> None:
        for node in self.item.program.graph.nodes:
            if node.op != "output":
                value = self.exported[node.name]
                visit(node, value if wider is None else wider.widened(value))

    def named_values(self, module: Any, wanted: Collection[str]) -> dict[str, Tensor]:
        self.wanted = wanted
        return {name: value for name, value in self.made.items() if name in wanted}


def first_wrong(made: dict[str, Any], exported: dict[str, Any] | None = None) -> str | None:
    values = Played(exported or {"a": ONES, "b": ONES, "c": ONES}, made)
    found = values.first_wrong_node(None)  # type: ignore[arg-type]
    if found is not None:
        assert (found.expected, found.given) == (values.exported[found.node.name], made[found.node.name])
        assert found.error.name == found.node.name
    return found and found.node.name


def test_the_first_node_with_another_value() -> None:
    assert first_wrong({}) is None
    assert first_wrong({"a": ONES, "b": ONES, "c": ONES}) is None
    assert first_wrong({"a": ONES, "b": ONES + 1, "c": ONES + 1}) == "b"
    assert first_wrong({"c": ONES + 1}) == "c"
    assert first_wrong({"x": ONES + 1}) is None  # an input is not a value that was computed


def test_values_of_other_shapes_and_numbers_are_not_compared() -> None:
    assert first_wrong({"a": torch.zeros(3), "b": ONES + 1}) == "b"
    assert first_wrong({"a": torch.zeros(3)}) is None
    assert first_wrong({"a": torch.tensor(3)}, {"a": 3, "b": ONES}) is None


def test_the_values_that_leave_modules() -> None:
    values = Played({"a": ONES, "n": 3, "b": ONES, "c": ONES}, {"a": ONES, "n": ONES, "b": ONES[:1], "c": ONES + 1})
    assert [node.name for node in values.leaving] == ["a", "b", "c"]
    assert values.wanted == ()
    found = values.module_errors()
    assert set(values.wanted) == {"a", "b", "c"}
    assert [(each.module, each.node, each.error.passed) for each in found] == [
        ("layers.a", "a", True), ("layers.c", "c", False),
    ]  # fmt: skip


def test_modules_whose_values_a_program_lacks() -> None:
    assert Played({"a": ONES, "b": ONES}, {}).module_errors() == ()
    (only,) = Played({"a": ONES, "b": ONES}, {"b": ONES}).module_errors()
    assert (only.node, only.error.backend) == ("b", "evaluator")


def error(difference: float) -> OutputError:
    return compare("y", "evaluator", ONES, ONES + difference)


@pytest.mark.parametrize(
    ("differences", "agree"), [([0.0, 0.0], True), ([0.0, 1.0], False), ([1.0, 0.0], False), (None, None)]
)
def test_a_program_agrees_in_all_outputs(differences: list[float] | None, agree: bool | None) -> None:
    def errors(backend: str, run: Any, tolerance: float | None) -> list[OutputError]:
        if differences is None:
            raise EvaluationError("it does not run")
        return [error(each) for each in differences]

    values = Played({}, {})
    values.expectation = SimpleNamespace(errors=errors)  # type: ignore[assignment]
    assert values.agrees(None) is agree  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expected", "given", "tolerance", "allowed"),
    [
        (ONES, ONES + 0.5, None, 1e-4),
        (ONES * 4, ONES * 4 + 0.5, 0.25, 1.0),
        (ONES * 0.25, ONES * 0.25 + 0.5, 0.25, 0.25),
        (ONES * 4, ONES * 4, 0.25, 0.25),
        (ONES * 4, ONES * math.inf, 0.25, 0.25),
        (ONES.int() * 4, ONES.int() * 5, 0.25, 0.25),
    ],
)
def test_the_tolerance_of_inner_values(
    expected: Tensor, given: Tensor, tolerance: float | None, allowed: float
) -> None:
    """A given one grows with the magnitude of floats that differ."""
    values = Played({"a": expected}, {}, tolerance)
    (node,) = values.leaving
    found = values.inner_error("a", node, expected, given)
    assert (found.tolerance, found.name) == (pytest.approx(allowed), "a")


def test_twins_of_inner_values_are_copies_of_tensors_with_names() -> None:
    half = torch.full((2,), 0.5).half()
    values = Played({"a": half, "n": 3}, {})
    assert {node.name: (twin.of, twin.value.tolist()) for node, twin in values.twins.items()} == {
        "a": (torch.float16, [0.5, 0.5])
    }
    single = Played({"a": ONES}, {})
    (twin,) = single.twins.values()
    assert isinstance(twin, Twin)
    assert (twin.of, twin.value.dtype) == (torch.float32, torch.float64)


def test_the_named_values_of_a_program() -> None:
    """Those of its own ops, not of the bodies of loops; without names that several values have."""

    def body(x: Value) -> list[Value]:
        y = coreai.sin(x)
        again, other = coreai.cos(y), coreai.cos(x)
        loop = coreai.while_(
            [coreai.constant(0), y],
            lambda i, x: coreai.broadcasting_greater(coreai.constant(2), i),
            lambda i, x: [coreai.broadcasting_add(i, 1), coreai.tanh(x)],
        )
        return [again, other, loop[1]]

    module = program({"x": "2xf32"}, body)
    names = {"coreai.sin": "a", "coreai.cos": "twice", "coreai.tanh": "inside", "coreai.while": "loop"}
    for op in ops_inside(module.op):
        if op.name in names:
            op.results[-1].name_hint = names[op.name]
    values = Played({}, {})
    values.final = module
    values.expectation = SimpleNamespace(  # type: ignore[assignment]
        states={}, given={"x": ONES}, errors=lambda backend, run, tolerance: run({}, {})
    )
    values.item.names = SimpleNamespace(states=())  # type: ignore[misc]
    found = ValueComparison.named_values(values, module, ["a", "twice", "inside", "loop", "none"])
    assert found.keys() == {"a", "loop"}
    assert torch.equal(found["a"], ONES.sin())
    assert torch.equal(found["loop"], ONES.sin().tanh().tanh())
    assert ValueComparison.named_values(values, module, ["loop"]).keys() == {"loop"}


def test_the_exported_program_runs_on_arrays_and_fixed_inputs() -> None:
    """The inputs of a function, and the contents of a state that the model does not have, may be arrays."""
    graph = Graph()
    x, weight, how = (graph.placeholder(name) for name in ("x", "weight", "how"))
    x.meta["val"] = weight.meta["val"] = ONES
    how.meta["val"] = "how"
    graph.output(graph.call_function(torch.ops.aten.add.Tensor, (x, weight), name="added"))
    item: Any = SimpleNamespace(
        program=SimpleNamespace(graph_module=GraphModule(torch.nn.Module(), graph)),
        signature=SimpleNamespace(fixed_inputs={"how": "text"}, constants={"weight": ("path", ONES)}),
        names=SimpleNamespace(of_arguments=lambda signature: {"x": "input"}),
    )
    expectation: Any = SimpleNamespace(states={}, given={"input": np.ones(2, np.float32)})
    seen: dict[str, Any] = {}
    values = ValueComparison(item, None, expectation, {}, None)  # type: ignore[arg-type]
    values.run_export(lambda node, value: seen.__setitem__(node.name, value))
    assert torch.equal(seen["x"], ONES)
    assert torch.equal(seen["added"], ONES + 1)
    assert seen["how"] == "text"


def test_the_place_of_a_value_is_its_source() -> None:
    values = Played({"a": ONES}, {"a": ONES})
    values.origins = {node: Origin("a", "layers.a", "model.py", 3) for node in values.item.program.graph.nodes}  # type: ignore
    assert [each.source for each in values.module_errors()] == ["model.py:3"]

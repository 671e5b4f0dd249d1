"""The search for a departure, step by step, on programs that are played by names."""

from __future__ import annotations

from operator import getitem
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, Node

from patcomp.errors import PatcompError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.verification import Departure, OutputError
from patcomp.frontend_torch.verification import departure as searching
from patcomp.frontend_torch.verification.departure import DepartureSearch
from patcomp.frontend_torch.verification.values import WrongValueError
from patcomp.ir.locations import Origin, joined, origin_location
from patcomp.patterns.context import UNLIMITED, Budget
from patcomp.rewrites import STAGES

ATEN = torch.ops.aten
NAMES = [stage.name for stage in STAGES]


class Search(DepartureSearch):
    """Each program is the name of the stage that made it."""

    def after(self, stage: Any, before: Any, budget: Budget = UNLIMITED) -> Any:
        return stage.name

    def in_stage(self, stage: Any, before: Any, after: Any) -> Departure:
        return Departure(after, rule=f"after {before}")

    def in_import(self, imported: Any) -> Departure:
        return Departure(imported)


def error(difference: float) -> OutputError:
    return compare("y", "evaluator", torch.ones(2), torch.ones(2) + difference)


def searched(wrong: set[str], *, unknown: frozenset[str] = frozenset(), tie: bool = False, export: float = 0.0) -> Any:
    """The departure of a conversion of which some programs are wrong, and some cannot be run."""

    def agrees(module: str) -> bool | None:
        return None if module in unknown else module not in wrong

    expectation = SimpleNamespace(errors=lambda *given: [error(0.0), error(export)], model=print)
    values = SimpleNamespace(expectation=expectation, export_outputs=None, tolerance=None, agrees=agrees, final="final",
                             item=SimpleNamespace(signature=SimpleNamespace(constants={})))  # fmt: skip
    history = SimpleNamespace(imported=lambda: "import", later={"one": "one", "two": "two"})
    search = Search(history, values)  # type: ignore[arg-type]
    search.near_tie = lambda stage, module: Departure(f"tie in {stage} of {module}") if tie else None  # type: ignore
    return search.departure()


@pytest.mark.parametrize("index", range(len(NAMES)))
def test_the_first_wrong_stage_is_searched(index: int) -> None:
    name, before = NAMES[index], ["import", *NAMES][index]
    found = searched({*NAMES[index:], "one", "two", "final"})
    assert (found.stage, found.rule) == (name, f"after {before}")
    assert searched({*NAMES[index:]}, tie=True).stage == f"tie in {name} of {name}"
    assert searched({"final"}, unknown=frozenset(NAMES[index:])).stage == ""


def test_what_is_before_and_after_the_stages_is_searched() -> None:
    assert searched(set()) is None
    assert searched(set(), tie=True) is None
    assert searched({"import", *NAMES}).stage == "import"
    assert searched({"import", *NAMES}, tie=True).stage == "tie in import of import"
    assert searched({"two", "final"}).stage == "two"
    assert searched({"one", "final"}).stage == "one"
    assert searched({"final"}).stage == ""
    assert searched({"final"}, unknown=frozenset(["import", "one", "two"])).stage == ""
    assert searched(set(), unknown=frozenset(["final"])) is None
    found = searched({"import"}, export=0.25)
    assert found.stage == "export"
    assert found.detail.startswith("output 'y' of the exported program, run by PyTorch, differs by 0.25; the given fun")


# ---- the rewrite of a stage -----------------------------------------------------------------------


class Bisected(DepartureSearch):
    """A stage of rewrites by the rules `r0`, `r1`, `r0`, ..., at the nodes `n0`, `n1`, ...: wrong from one on."""

    trials = 0

    def after(self, stage: Any, before: Any, budget: Budget = UNLIMITED) -> Any:
        self.trials += 1
        for index in range(self.values.count):  # type: ignore[attr-defined]
            if not budget.exhausted:
                places = [origin_location(Origin(name)) for name in (f"n{index}", "second")]
                budget.spend(SimpleNamespace(rule=f"r{index % 2}", location=joined(places)))  # type: ignore[arg-type]
        return len(budget.spent)


def bisected(count: int, first: int, wrong_node: str = "") -> tuple[Departure, int]:
    """The departure in a stage of some rewrites, all of which are needed to be as wrong as the number of the first
    wrong one says; and how often the stage ran."""
    found = SimpleNamespace(node=wrong_node) if wrong_node else None
    values = SimpleNamespace(
        count=count,
        agrees=lambda made: made < first,
        first_wrong_node=lambda module: found,
        origins={wrong_node: Origin(wrong_node)},
    )
    rules = [SimpleNamespace(name=f"r{index}", source=f"file:{index}", doc=f"doc {index}") for index in range(2)]
    search = Bisected(SimpleNamespace(rules=rules), values)  # type: ignore[arg-type]
    return search.in_stage(SimpleNamespace(name="lower"), None, None), search.trials  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_the_first_wrong_rewrite_is_found(count: int) -> None:
    for first in range(1, count + 1):
        found, trials = bisected(count, first)
        rule = (first - 1) % 2
        assert (found.stage, found.rule, found.node) == ("lower", f"r{rule}", f"n{first - 1}")
        assert (found.rule_source, found.rule_doc) == (f"file:{rule}", f"doc {rule}")
        right = f"the outputs are right with the first {first - 1} of {count} rewrites of the stage"
        assert found.detail == f"{right}, and wrong with the next"
        assert trials <= 2 + count.bit_length()


def test_a_stage_that_is_wrong_without_rewrites() -> None:
    for count in (0, 1, 5):
        found, _ = bisected(count, 0)
        assert (found.stage, found.rule) == ("lower", "")
        assert found.detail == "without any rewrite of a rule the outputs are wrong, too"


@pytest.mark.parametrize(("wrong_node", "node"), [("n1", "n1"), ("n5", "n5"), ("n2", "n3"), ("second", "n3")])
def test_the_place_is_the_first_wrong_value_that_the_rule_made(wrong_node: str, node: str) -> None:
    """Of all its rewrites, and only where each rewrite begins."""
    assert bisected(6, 4, wrong_node)[0].node == node


# ---- the import -----------------------------------------------------------------------------------


def sorting() -> tuple[Node, Node]:
    """A sort, and its indices."""
    graph = Graph()
    made = graph.call_function(ATEN.sort.default, (graph.placeholder("x"),), name="sort")
    return made, graph.call_function(getitem, (made, 1), name="indices")


@pytest.mark.parametrize(
    ("expanded", "declared", "rule", "how"),
    [
        (False, "real", "", ""),
        (True, "none", "", ", decomposed by PyTorch,"),
        (True, "real", "ours", ", decomposed by the rule,"),
        (True, "complex", "ours", ", decomposed by the rule,"),
    ],
)
def test_a_departure_in_the_import_names_the_decomposition(expanded: bool, declared: str, rule: str, how: str) -> None:
    made, indices = sorting()
    ours = SimpleNamespace(name="ours", source="file:1", doc="ours")

    class Rules(list[Any]):
        def decompositions(self, *, of_complex: bool = False) -> dict[str, Any]:
            return {"aten.sort": ours} if declared == ("complex" if of_complex else "real") else {}

    wrong = WrongValueError(indices, error(0.5), torch.ones(2), torch.ones(2))
    values = SimpleNamespace(
        first_wrong_node=lambda module: wrong,
        item=SimpleNamespace(expansions={made: None} if expanded else {}),
        origins={made: Origin("sort", "layer", "model.py", 3)},
    )
    found = DepartureSearch(SimpleNamespace(rules=Rules([ours])), values).in_import(None)  # type: ignore[arg-type]
    assert (found.stage, found.rule, found.rule_source) == ("import", rule, "file:1" if rule else "")
    assert (found.node, found.module, found.source) == ("sort", "layer", "model.py:3")
    assert found.detail == f"aten.sort{how} differs by 0.5 from PyTorch's"


def test_an_import_of_which_no_node_is_wrong() -> None:
    values: Any = SimpleNamespace(first_wrong_node=lambda module: None)
    departure = DepartureSearch(None, values).in_import(None)  # type: ignore[arg-type]
    assert (departure.stage, departure.rule) == ("import", "")
    assert departure.detail == "the outputs differ, and no single node of the program does"


# ---- near ties ------------------------------------------------------------------------------------


def tied(node: Node, given: dict[str, Any], expected: Tensor, other: Tensor, tolerance: float | None) -> Any:
    """The tie at a node of a program whose nodes have some values, which the program overwrites in the end."""

    def run_export(visit: Any) -> None:
        values = {each: given.get(each.name) for each in node.graph.nodes}
        for each, value in values.items():
            visit(each, value)
        for value in values.values():
            if isinstance(value, Tensor):
                value.zero_()

    values = SimpleNamespace(run_export=run_export, tolerance=tolerance, origins={node: Origin(node.name, "layer")})
    return DepartureSearch(SimpleNamespace(rules=[]), values).tie_at("lower", node, expected, other)  # type: ignore


@pytest.mark.parametrize(("apart", "tolerance"), [(0.25, None), (0.25, 0.25), (2**-12, 2**-12), (2**-14, None)])
def test_a_choice_within_the_tolerance_is_a_tie(apart: float, tolerance: float | None) -> None:
    _, indices = sorting()
    x = torch.tensor([1.0, 1.0 + apart])
    found = tied(indices, {"x": x}, torch.tensor([0, 1]), torch.tensor([1, 0]), tolerance)
    if apart > (tolerance or 1e-4):
        assert found is None
    else:
        assert (found.stage, found.rule, found.near_tie) == ("lower", "", apart)
        assert (found.node, found.module) == ("indices", "layer")
        assert found.detail.startswith(f"aten.sort decides between values that differ by {apart:.3g}, and the toler")


def test_what_does_not_choose_has_no_tie() -> None:
    graph = Graph()
    added = graph.call_function(ATEN.add.Tensor, (graph.placeholder("x"), 1.0))
    assert tied(added, {"x": torch.ones(2)}, torch.zeros(2), torch.ones(2), 9.0) is None


def test_sizes_among_the_operands_of_a_choice_are_numbers() -> None:
    graph = Graph()
    x, limit = graph.placeholder("x"), graph.placeholder("limit")
    compared = graph.call_function(ATEN.lt.Scalar, (x, limit))
    found = tied(compared, {"x": torch.tensor([3.0]), "limit": 3}, torch.tensor([True]), torch.tensor([False]), 0.0)
    assert found.near_tie == 0.0


# ---- the runtime ----------------------------------------------------------------------------------


def on_runtime(monkeypatch: pytest.MonkeyPatch, moved: dict[str, Any], refused: str = "", run_refused: str = "") -> Any:
    """The departure on a runtime whose outputs are moved: of an inner value `a` that leaves two modules, of an inner
    value `b` that leaves none, and of the outputs `c` (of a program's value) and `gone` (that the evaluator lacks)."""
    graph = Graph()
    a, b, c, gone = (graph.placeholder(name) for name in ("a", "b", "c", "gone"))
    expected = {"inner.a": torch.ones(2), "out": torch.ones(2)}
    seen: list[Any] = []

    def run(module: str, backend: str) -> dict[str, Any]:
        if run_refused:
            raise PatcompError(run_refused)
        seen.append((module, backend))
        return expected if backend == "evaluator" else {
            name: value.numpy() + moved.get(name, 0.0) if name == "out" else value + moved.get(name, 0.0)
            for name, value in expected.items()
        }  # fmt: skip

    def verified(module: str, *, runtime: bool) -> None:
        assert runtime
        if refused:
            raise PatcompError(refused)

    def with_outputs(module: str, name: str, wanted: dict[str, Node]) -> tuple[str, dict[str, str]]:
        assert (module, name, wanted) == ("final", "main", {"a": a})
        return "wider", {"inner.a": "a"}

    monkeypatch.setattr(searching, "verify", verified)
    monkeypatch.setattr(searching, "with_outputs", with_outputs)
    values = SimpleNamespace(
        final="final",
        leaving={a: ["layer.inner", "layer"]},
        names=lambda node: (node.name,),
        item=SimpleNamespace(
            name="main",
            names=SimpleNamespace(states=("state",), outputs=("out",)),
            signature=SimpleNamespace(results=("gone", "c")),
            program=SimpleNamespace(graph=graph),
        ),
        origins={a: Origin("a", "a of"), b: Origin("b", "b of"), c: Origin("c", "c of"), gone: Origin("gone")},
        inner_error=lambda name, node, expected, given: compare(name, "runtime", expected, given),
    )
    search = DepartureSearch(SimpleNamespace(rules=[]), values)  # type: ignore[arg-type]
    search.tie_at = lambda stage, node, expected, given: Departure(f"tie of {node}") if moved.get("tie") else None  # type: ignore
    found = search.runtime_departure(run)  # type: ignore[arg-type]
    assert seen == ([] if refused or run_refused else [("wider", "evaluator"), ("wider", "runtime")])
    return found


def test_where_the_runtime_departs(monkeypatch: pytest.MonkeyPatch) -> None:
    detail = "the Core AI runtime computes other numbers than the evaluator for the same IR"
    for moved, node, module, more in (
        ({}, "", "", ""),
        ({"inner.a": 0.5}, "a", "layer.inner", "; %a differs by 0.5"),
        ({"out": 0.25}, "c", "c of", "; %c differs by 0.25"),
        ({"inner.a": 0.5, "out": 0.25}, "a", "layer.inner", "; %a differs by 0.5"),
    ):
        found = on_runtime(monkeypatch, moved)
        assert (found.stage, found.node, found.module, found.detail) == ("runtime", node, module, detail + more)
    assert on_runtime(monkeypatch, {"out": 0.25, "tie": True}).stage == "tie of c"
    for refusals in ({"refused": "no f64"}, {"run_refused": "no f64"}):
        found = on_runtime(monkeypatch, {"out": 0.25}, **refusals)
        assert (found.stage, found.node) == ("runtime", "")
        assert found.detail == f"{detail}; inner values cannot be outputs: no f64"


@pytest.mark.parametrize("found", [None, ("node", 0.25, 0.5)])
def test_the_loss_of_half_precision_has_a_place(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "most_lost", lambda values: found)
    values = SimpleNamespace(origins={"node": Origin("node", "layer", "model.py", 7)})
    loss = DepartureSearch(None, values).half_loss()  # type: ignore[arg-type]
    if found is None:
        assert loss is None
    else:
        assert loss is not None
        assert (loss.module, loss.node, loss.source) == ("layer", "node", "model.py:7")
        assert (loss.before, loss.after) == (0.25, 0.5)

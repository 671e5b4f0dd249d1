"""The steps of the way in: each op is decomposed once, and the graph of one node serves those that are like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from patcomp import ConversionWarning, TorchConverter
from patcomp.frontend_torch.decomposition.decompose import Decomposer, key_of
from patcomp.patterns import RuleSet, decomposition, example
from tests.frontend_torch.models import Function

X = torch.arange(24.0).reshape(4, 6)


def exported(function: Callable[..., object], *tensors: Tensor, **options: Any) -> ExportedProgram:
    return torch.export.export(Function(function), tensors, **options)


def node_of(program: ExportedProgram, op: str) -> Node:
    (node,) = (node for node in program.graph.nodes if str(node.target).startswith(op))
    return node


def glu(axis: int = -1) -> Callable[[Tensor], Tensor]:
    return lambda x: nn.functional.glu(x, axis)


def test_nothing_is_decomposed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if lengths of slices become dynamic, so that the program is changed."""
    made: list[Any] = []
    before = Decomposer._decomposed

    def counted(self: Decomposer, node: Node, *others: Any) -> Any:
        made.append((node.target, key_of(node)))
        return before(self, node, *others)

    monkeypatch.setattr(Decomposer, "_decomposed", counted)
    program = exported(
        lambda x: (nn.functional.glu(x.flatten()[:6].reshape(-1) * 1, 0), nn.functional.glu(x), nn.functional.glu(x)),
        torch.ones(4, 8),
        dynamic_shapes=(({0: Dim("n", min=1, max=9)},),),
    )
    TorchConverter().add_exported_program(program)
    glus = [key for target, key in made if target is torch.ops.aten.glu.default]
    assert len(made) == len(set(made))
    assert len(glus) == 2, "the two glus of x share a graph"


def test_a_changed_program_is_decomposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ExportedProgram] = []
    before = Decomposer.expansions
    monkeypatch.setattr(
        Decomposer, "expansions", lambda self, program: (calls.append(program), before(self, program))[1]
    )
    program = exported(lambda x: x.flatten()[:7] * 2, X, dynamic_shapes=(({0: Dim("n", min=1, max=9)},),))
    with pytest.warns(ConversionWarning, match="where n is 1; the program computes this shape"):
        TorchConverter().add_exported_program(program)
    assert len(calls) == 1
    assert calls[0] is not program


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: exported(glu(0), X), id="argument"),
        pytest.param(lambda: exported(glu(), X[:2]), id="shape"),
        pytest.param(lambda: exported(glu(), X.double()), id="dtype"),
        pytest.param(lambda: exported(glu(), X.reshape(6, 4).T), id="stride"),
    ],
)
def test_nodes_that_differ_in_one_thing_have_their_own_graphs(other: Callable[[], ExportedProgram]) -> None:
    mine = node_of(exported(glu(), X), "aten.glu")
    assert key_of(mine) == key_of(node_of(exported(glu(), X + 1), "aten.glu"))
    assert key_of(mine) != key_of(node_of(other(), "aten.glu"))


def test_numbers_that_python_compares_equal_differ() -> None:
    keys = [key_of(node_of(exported(lambda x, s=s: x + s, X), "aten.add")) for s in (1, 1.0, True)]
    assert len(set(keys)) == 3


def test_unused_results_count() -> None:
    both = exported(lambda x: torch.aminmax(x), X)
    one = exported(lambda x: torch.aminmax(x).min, X)
    assert key_of(node_of(both, "aten.aminmax")) != key_of(node_of(one, "aten.aminmax"))


FACTOR = {"of the flipped": 2.0}


@decomposition("aten.rot90", examples=[example("3x3xf32")])
def scaled(self: Tensor, k: int = 1, dims: tuple[int, int] = (0, 1)) -> Tensor:
    """The product with a number that the function reads from outside."""
    return self.flip(0) * FACTOR["of the flipped"]


def test_decompositions_may_read_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    program = exported(lambda x: torch.rot90(x, 1, (0, 1)), torch.ones(3, 3))

    def text() -> str:
        return TorchConverter(catalog=[RuleSet([scaled])]).add_exported_program(program).imported().text()

    assert "2.0" in text()
    monkeypatch.setitem(FACTOR, "of the flipped", 3.0)
    assert "3.0" in text()

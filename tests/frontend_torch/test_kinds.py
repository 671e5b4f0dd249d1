"""Nodes of one kind share their decomposition in the whole process; nodes that differ in anything have their own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule, Node

from patcomp import TorchConverter
from patcomp.frontend_torch.decomposition.decompose import Decomposer
from patcomp.frontend_torch.decomposition.kinds import kind_of
from patcomp.patterns import RuleSet, decomposition, example

X = torch.arange(24.0).reshape(4, 6)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., object]):
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> object:
        return self.function(*tensors)


def exported(function: Callable[..., object], *tensors: Tensor, **options: object) -> ExportedProgram:
    return torch.export.export(Calls(function), tensors, **options)  # type: ignore[arg-type]


def node_of(program: ExportedProgram, op: str) -> Node:
    (node,) = (node for node in program.graph.nodes if str(node.target).startswith(op))
    return node


def graph_of(program: ExportedProgram, op: str, converter: TorchConverter | None = None) -> GraphModule | None:
    converter = converter or TorchConverter()
    return Decomposer(converter.rules, converter.lowerings).graph_of(node_of(program, op))


def glu(axis: int = -1) -> Callable[[Tensor], Tensor]:
    return lambda x: nn.functional.glu(x, axis)


def test_equal_nodes_of_two_programs_share_a_graph() -> None:
    first, second = exported(glu(), X), exported(glu(), X + 1)
    assert graph_of(first, "aten.glu") is graph_of(second, "aten.glu") is not None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(exported(glu(0), X), id="argument"),
        pytest.param(exported(glu(), X[:2]), id="shape"),
        pytest.param(exported(glu(), X.double()), id="dtype"),
        pytest.param(exported(glu(), X.reshape(6, 4).T), id="stride"),
        pytest.param(exported(glu(), X.to("meta")), id="device"),
        pytest.param(exported(glu(), X.clone().requires_grad_()), id="requires_grad"),
    ],
)
def test_nodes_that_differ_in_one_thing_have_their_own_graphs(other: ExportedProgram) -> None:
    assert graph_of(exported(glu(), X), "aten.glu") is not graph_of(other, "aten.glu")


def test_numbers_that_python_compares_equal_differ() -> None:
    kinds = [kind_of(node_of(exported(lambda x, s=s: x + s, X), "aten.add")) for s in (1, 1.0, True)]
    assert None not in kinds
    assert len(set(kinds)) == 3


def test_unused_results_count() -> None:
    both = exported(lambda x: torch.aminmax(x), X)
    one = exported(lambda x: torch.aminmax(x).min, X)
    assert kind_of(node_of(both, "aten.aminmax")) != kind_of(node_of(one, "aten.aminmax"))


def test_dynamic_sizes_belong_to_their_program() -> None:
    programs = [exported(glu(), X, dynamic_shapes=(({0: Dim("n", min=low)},),)) for low in (2, 3)]
    assert [kind_of(node_of(program, "aten.glu")) for program in programs] == [None, None]
    graphs = [graph_of(program, "aten.glu") for program in programs]
    assert graphs[0] is not graphs[1]


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(lambda: torch.autocast("cpu"), id="autocast"),
        pytest.param(lambda: torch.device("meta"), id="default device"),
        pytest.param(lambda: torch.inference_mode(), id="inference mode"),
        pytest.param(lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), id="attention"),
    ],
)
def test_nothing_is_shared_under_other_settings(setting: Callable[[], AbstractContextManager[object]]) -> None:
    node = node_of(exported(glu(), X), "aten.glu")
    assert kind_of(node) is not None
    with setting():
        assert kind_of(node) is None


def test_nothing_is_shared_under_another_default_dtype() -> None:
    node = node_of(exported(glu(), X), "aten.glu")
    torch.set_default_dtype(torch.float64)
    try:
        assert kind_of(node) is None
    finally:
        torch.set_default_dtype(torch.float32)
    assert kind_of(node) is not None


FACTOR = {"of the flipped": 2.0}


@decomposition("aten.rot90", examples=[example("3x3xf32")])
def scaled(self: Tensor, k: int = 1, dims: tuple[int, int] = (0, 1)) -> Tensor:
    """The product with a number that the function reads from outside."""
    return self.flip(0) * FACTOR["of the flipped"]


def test_decompositions_of_users_may_read_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    program = exported(lambda x: torch.rot90(x, 1, (0, 1)), torch.ones(3, 3))

    def text() -> str:
        return TorchConverter(catalog=[RuleSet([scaled])]).add_exported_program(program).imported().text()

    assert "2.0" in text()
    monkeypatch.setitem(FACTOR, "of the flipped", 3.0)
    assert "3.0" in text()


def test_a_catalog_has_its_own_graphs() -> None:
    program = exported(lambda x: torch.rot90(x, 1, (0, 1)), torch.ones(3, 3))
    mine = TorchConverter(catalog=[RuleSet([scaled])])
    assert graph_of(program, "aten.rot90") is not graph_of(program, "aten.rot90", mine)


def test_graphs_keep_neither_programs_nor_weights() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.GLU())
    weight = model[0].weight
    program = torch.export.export(model, (X,))
    graph = graph_of(program, "aten.glu")
    kept = [weakref.ref(weight), weakref.ref(program)]
    del model, program, weight
    gc.collect()
    assert graph is graph_of(exported(lambda x: nn.functional.glu(x + x), X), "aten.glu")
    assert [reference() for reference in kept] == [None, None]


def test_texts_are_the_same_with_and_without_graphs_of_earlier_conversions() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.GLU(1), nn.Dropout()).eval()
    program = torch.export.export(model, (torch.ones(1, 3, 8, 8),))
    alone = TorchConverter(catalog=[RuleSet([scaled])])  # which shares nothing
    texts = [
        converter.add_exported_program(program).to_coreai().text(locations=True)
        for converter in (alone, TorchConverter(), TorchConverter())
    ]
    assert len(set(texts)) == 1

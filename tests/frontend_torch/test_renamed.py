"""Graphs that are written down are the graphs that a trace has."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from patcomp.frontend_torch.decomposition import decompose
from tests.frontend_torch.models import converted


class Ops(nn.Module):
    def __init__(self, axes: int, **options: object):
        super().__init__()
        self.layer = getattr(nn, f"Conv{axes}d")(4, 8, 3, **options)
        self.norm = getattr(nn, f"BatchNorm{axes}d")(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x))


OPTIONS = [
    {},
    {"stride": 2, "padding": 1, "dilation": 2},
    {"groups": 4, "bias": False},
]


def graphs_of(model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch, *, written: bool) -> list[str]:
    """The graphs of the nodes that were decomposed, with the types of all values."""
    found = []
    inner = decompose.Decomposer._graph_of

    def noted(self: decompose.Decomposer, *arguments: object) -> tuple[GraphModule | None, list[str]]:
        graph, unknown = inner(self, *arguments)  # type: ignore[arg-type]
        assert graph is not None
        types = [str(node.meta.get("val")) for node in graph.graph.nodes if node.op == "call_function"]
        found.append(f"{graph.graph} {types}")
        return graph, unknown

    with monkeypatch.context() as patch:
        patch.setattr(decompose.Decomposer, "_graph_of", noted)
        if not written:
            patch.setattr(decompose, "renamed", lambda node: None)
        converted(model.eval(), (x,), None)
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_and_norms(axes: int, options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Ops(axes, **options), torch.randn(2, 4, *[9] * axes)
    traced = graphs_of(model, x, monkeypatch, written=False)
    assert graphs_of(model, x, monkeypatch, written=True) == traced
    assert len(traced) == 2


class WithoutBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 8, 3)
        self.norm = nn.BatchNorm2d(8, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x)[None])


def test_other_forms_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = WithoutBatch(), torch.randn(4, 9, 9)
    assert graphs_of(model, x, monkeypatch, written=True) == graphs_of(model, x, monkeypatch, written=False)

"""`torch.compile(model, backend="patcomp")`: graph breaks, custom ops, dynamic sizes and weights that change."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tests.partitions.models  # noqa: F401  (custom ops)
from patcomp.partitions import PartitionReport
from patcomp.partitions.compile_backend import compile_graph

ROOT = Path(__file__).parents[2]
ENGINES = ["evaluator", *["runtime"] * bool(find_spec("coreai"))]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """The backend by its name, also where the installed patcomp does not declare it yet."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    if "patcomp" not in torch._dynamo.list_backends():
        torch._dynamo.register_backend(compile_graph, name="patcomp")
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def compiled(model: nn.Module, **options: Any) -> tuple[nn.Module, list[PartitionReport]]:
    reports: list[PartitionReport] = []
    options = {"engine": "evaluator", "report": reports.append, **options}
    made: nn.Module = torch.compile(model, backend="patcomp", options=options)  # type: ignore[assignment]
    return made, reports


class Model(nn.Module):
    """A custom op, then a branch in Python on data, which breaks the graph, and a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.ops.partitions.flipped(self.first(x))
        if y.sum() > 1e9:
            y = y * 0
        self.calls.add_(1)
        return self.last(y).softmax(-1) + self.calls


def test_pyproject_declares_the_backend() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    assert declared == {"patcomp": f"{compile_graph.__module__}:{compile_graph.__name__}"}


@pytest.mark.parametrize("engine", ENGINES)
def test_graph_breaks_custom_ops_and_dynamic_sizes(engine: str) -> None:
    """Two graphs, one of which is made again for the buffer; and no graph for other sizes within the range."""
    model = Model().eval()
    reference = copy.deepcopy(model)
    run, reports = compiled(model, engine=engine)
    for size in (5, 5, 2, 9, 40):
        x = torch.randn(size, 16)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        torch.testing.assert_close(run(x), reference(x), atol=1e-5, rtol=0)
    assert torch.equal(model.calls, reference.calls)
    assert len(reports) == 3
    assert "partitions.flipped" in {problem.op for problem in reports[0].left}
    assert [report.converted_multiply_adds for report in reports] == [1, 1, 1]


def test_a_weight_that_changes() -> None:
    """In place, as `load_state_dict` does it; then it is an input, and later changes convert nothing."""
    run, reports = compiled(model := nn.Linear(8, 8), least_intensity=0)
    x = torch.randn(3, 8)
    for factor in (1, 2, 3):
        model.load_state_dict({name: value * factor for name, value in model.state_dict().items()})
        torch.testing.assert_close(run(x), model(x), atol=1e-5, rtol=0)
    assert len(reports) == 2
    assert "arg0_1" in {each.value for each in reports[1].crossings}


def test_layers_that_share_a_graph() -> None:
    """Their weights differ."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
                torch._dynamo.graph_break()
            return x

    run, _ = compiled(model := Layers(), least_intensity=0)
    x = torch.randn(2, 8)
    torch.testing.assert_close(run(x), model(x), atol=1e-5, rtol=0)


def test_inputs_that_the_model_writes_to_and_views_of_them() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x.mul_(2)
            return x[0], x @ x

    run, _ = compiled(Model(), least_intensity=0)
    x = torch.randn(4, 4)
    with torch.inference_mode():
        row, product = run(given := x.clone())
    torch.testing.assert_close(given, 2 * x)
    torch.testing.assert_close(row, 2 * x[0])
    torch.testing.assert_close(product, 4 * x @ x, atol=1e-5, rtol=0)


def test_training_is_refused() -> None:
    run, _ = compiled(model := nn.Linear(4, 4))
    with torch.enable_grad(), pytest.raises(Exception, match=r"TrainingError.* records gradients; .*no_grad"):
        run(torch.randn(2, 4))
    model.requires_grad_(False)
    with torch.enable_grad():
        assert run(torch.randn(2, 4)).shape == (2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"enginee": "runtime"}, "no option 'enginee'; did you mean engine"), ({"engine": "gpu"}, "engine must be")],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    run, _ = compiled(nn.ReLU(), **options)
    with pytest.raises(Exception, match=message):
        run(torch.ones(2))

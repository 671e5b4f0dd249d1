"""Assets that are loaded and run without `asyncio`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import patcomp
from patcomp import AIProgram, Asset, EvaluationError, TorchConverter, UnknownNameError
from patcomp.errors import AssetError

pytest.importorskip("coreai")


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((2, 3), 10.0))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        self.steps.add_(1)
        return self.total[index], self.steps * 2


X = torch.arange(6.0).reshape(2, 3)
INDEX = torch.tensor([1, 0, 1])


def converted(model: nn.Module, *inputs: torch.Tensor, **options: object) -> AIProgram:
    exported = torch.export.export(model, inputs, **options)  # type: ignore[arg-type]
    return (
        TorchConverter().add_exported_program(exported, output_names=["rows", "count"][: len(options) or 2]).to_coreai()
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(Sums(), X, INDEX).save_asset(tmp_path_factory.mktemp("assets") / "sums.aimodel").path


def test_a_sequence_of_calls_keeps_the_state(path: Path) -> None:
    asset, model = patcomp.load(str(path)), Sums()
    state = asset.new_state()
    first = state["b_total"]
    for _ in range(3):
        outputs = asset.run({"x": X, "index": INDEX}, state)  # 64-bit indices are narrowed
        rows, count = model(X, INDEX)
        np.testing.assert_allclose(outputs["rows"], rows.numpy())
        assert outputs["count"] == count
    assert state["b_total"] is first
    np.testing.assert_allclose(first, model.total.numpy())
    again = asset.run({"x": X.numpy(), "index": INDEX.numpy()})
    np.testing.assert_allclose(again["rows"], Sums()(X, INDEX)[0].numpy())
    np.testing.assert_allclose(asset.new_state()["b_total"], 10.0)
    empty: dict[str, np.ndarray] = {}
    asset.run({"x": X, "index": INDEX}, empty)
    assert empty["b_steps"] == 1


def test_the_model_is_compiled_once_and_can_be_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset, made = patcomp.load(path), []
    original = Asset.executable
    monkeypatch.setattr(Asset, "executable", lambda self: made.append(self) or original(self))
    inputs = {"x": X, "index": INDEX}
    outputs = [asset.run(inputs)["rows"] for _ in range(3)]
    assert len(made) == 1
    asset.close()
    asset.close()
    np.testing.assert_array_equal(outputs[0], asset.run(inputs)["rows"])
    assert len(made) == 2


def test_it_runs_inside_an_event_loop(path: Path) -> None:
    async def rows() -> np.ndarray:
        return patcomp.load(path).run({"x": X, "index": INDEX})["rows"]

    np.testing.assert_allclose(asyncio.run(rows()), Sums()(X, INDEX)[0].numpy())


def test_wrong_uses_are_named(path: Path) -> None:
    asset = patcomp.load(path)
    inputs = {"x": X, "index": INDEX}
    with pytest.raises(TypeError, match=r"takes its inputs by name, asset.run\(\{.*'x': \.\.\..*\}\), got Tensor"):
        asset.run(X)  # type: ignore[arg-type]
    with pytest.raises(EvaluationError, match="graph @main needs input x and has no input y; its inputs are index, x"):
        asset.run({"y": X, "index": INDEX})
    with pytest.raises(EvaluationError, match=r"input 'x' must be of type tensor<2x3xf32>, got .* \(3, 2\)"):
        asset.run({"x": X.T, "index": INDEX})
    with pytest.raises(EvaluationError, match=r"input 'index' has values that do not fit int32"):
        asset.run({"x": X, "index": INDEX + 2**40})
    with pytest.raises(EvaluationError, match="graph @main has no state total; its states are b_steps, b_total"):
        asset.run(inputs, {"total": X})
    with pytest.raises(UnknownNameError, match="there is no entry point 'mian'; there are main"):
        asset.run(inputs, entrypoint="mian")


def test_what_is_not_an_asset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no asset 'missing\.aimodel'; program\.save_asset"):
        patcomp.load("missing.aimodel")
    file, folder = tmp_path / "m.py", tmp_path / "folder.aimodel"
    file.write_text("x = 1\n")
    folder.mkdir()
    with pytest.raises(AssetError, match=r"m.py' is not an asset: it is a file"):
        Asset.load(file)
    with pytest.raises(AssetError, match=r"it is an empty folder, without metadata.json"):
        Asset.load(folder)
    for name in ("metadata.json", "main.mlirb"):
        (folder / name).write_text("nonsense")
    with pytest.raises(AssetError, match="cannot be read"):
        Asset.load(folder)


def test_a_process_that_never_closes_it_ends(path: Path) -> None:
    script = (
        "import patcomp, torch\n"
        f"asset = patcomp.load({str(path)!r})\n"
        "print(asset.run({'x': torch.ones(2, 3), 'index': torch.tensor([0, 0, 0])})['count'], flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("2")
    # On a loaded machine a thread of the runtime may still release Python objects when the interpreter has ended, and
    # CPython up to 3.13 ends such a thread in a way that Swift aborts on. Nothing else may go wrong.
    assert done.returncode == 0 or "C++ exception handling detected" in done.stderr, done.stderr


def test_sizes_that_the_asset_leaves_open(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    program = converted(nn.ReLU(), X, dynamic_shapes=({0: rows},))
    asset = program.save_asset(tmp_path / "relu.aimodel")
    for count in (1, 5):
        x = torch.randn(count, 3)
        np.testing.assert_array_equal(asset.run({"input": x})["rows"], x.relu().numpy())


def test_outputs_are_in_the_order_of_the_signature(tmp_path: Path) -> None:
    """The runtime's own order is random: it is right by accident in one process of 40,320."""

    class Eight(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(x + index for index in range(8))

    names = list("zbyacxdw")
    program = TorchConverter().add_exported_program(torch.export.export(Eight(), (X,)), output_names=names).to_coreai()
    outputs = program.save_asset(tmp_path / "eight.aimodel").run({"x": X})
    assert list(outputs) == names
    assert [float(value[0, 0]) for value in outputs.values()] == [float(X[0, 0]) + index for index in range(8)]

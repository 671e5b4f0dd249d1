"""Assets on a machine without coreai-core: converted, inspected, compared, audited and run by the command."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import patcomp as package
from patcomp.emit.asset import save_asset
from patcomp.emit.bytecode import ProgramWriter
from patcomp.emit.stored.folder import read_folder
from patcomp.errors import AssetError, EvaluationError, UnknownNameError
from patcomp.ir import IRModule
from tests.asset.native_programs import native_programs
from tests.helpers.command import Command

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, bias=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear = nn.RMSNorm(32), nn.Linear(32, 32)
        self.linear.weight.data += bias

    def forward(self, x):
        return self.linear(self.norm(x)).relu()

class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.ones(4))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2

def net(): return Net().eval(), (torch.rand(2, 32),)
def changed(): return Net(0.5).eval(), (torch.rand(2, 32),)
def sums(): return Sums().eval(), (torch.rand(4),)
"""


@pytest.fixture(autouse=True)
def _without_the_toolchain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "coreai.authoring", None)
    (tmp_path / "models.py").write_text(MODELS)


def _convert(patcomp: Command, *names: str) -> None:
    for name in names:
        done = patcomp("convert", f"models.py:{name}", "-o", f"{name}.aimodel")
        assert done.code == 0, done.err


def test_an_asset_is_written_read_and_run(patcomp: Command, tmp_path: Path) -> None:
    _convert(patcomp, "net", "sums")
    found = json.loads(patcomp("inspect", "net.aimodel", "--json").out)
    assert found["composites"] == {"rms_norm": 1}
    assert found["metadata"]["producer"].startswith("patcomp ")
    assert [weight["name"] for weight in found["weights"]] == ["linear.weight"]
    x = np.random.default_rng(0).random((2, 32), np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    done = patcomp("run", "net.aimodel", "--inputs", "inputs.npz", "-o", "out.npz", "--backend", "evaluator")
    assert done.code == 0, done.err
    scope: dict[str, object] = {}
    exec(MODELS, scope)
    expected = scope["Net"]().eval()(torch.from_numpy(x))  # type: ignore[operator]
    (output,) = np.load(tmp_path / "out.npz").values()
    np.testing.assert_allclose(output, expected.detach().numpy(), atol=1e-5)
    done = patcomp("run", "net.aimodel")
    assert done.code == 1
    assert "needs coreai-core" in done.err


def test_states_start_from_those_of_the_asset(patcomp: Command) -> None:
    _convert(patcomp, "sums")
    asset = package.load("sums.aimodel")
    assert asset.function_names == ["main"]
    state = asset.new_state()
    for count in (1, 2):
        (output,) = asset.evaluate({"x": np.ones(4, np.float32)}, state).values()
        np.testing.assert_array_equal(output, np.full(4, 2.0 * (1 + count)))
    np.testing.assert_array_equal(state["b_total"], np.full(4, 3.0))
    np.testing.assert_array_equal(asset.new_state()["b_total"], np.ones(4))


def test_a_difference_names_the_weight(patcomp: Command) -> None:
    _convert(patcomp, "net", "changed")
    assert patcomp("diff", "net.aimodel", "net.aimodel").code == 0
    done = patcomp("diff", "net.aimodel", "changed.aimodel")
    assert done.code == 3
    assert done.out.splitlines() == ["weights with other values", "  linear.weight"]
    assert patcomp("diff", "net.aimodel", "models.py:net").code == 0


def test_questions_about_an_asset(patcomp: Command, tmp_path: Path) -> None:
    _convert(patcomp, "net")
    module = package.load("net.aimodel").module
    done = patcomp("opt", "net.aimodel", "-p", "optimize")
    assert done.code == 0, done.err
    assert IRModule.parse(done.out).op_count() == module.op_count()
    assert "models.py:13" in patcomp("explain", "net.aimodel", "models.py:13").out
    assert patcomp("audit", "net.aimodel", "--target", "neural_engine").code in (0, 3)


def test_damaged_assets_are_named(patcomp: Command, tmp_path: Path) -> None:
    _convert(patcomp, "net")
    for change in (lambda data: data[:-300], lambda data: b"", lambda data: data[:100] + b"\xff" * 20 + data[120:]):
        shutil.copytree("net.aimodel", "broken.aimodel", dirs_exist_ok=True)
        program = tmp_path / "broken.aimodel" / "main.mlirb"
        program.write_bytes(change((tmp_path / "net.aimodel" / "main.mlirb").read_bytes()))
        done = patcomp("inspect", "broken.aimodel")
        assert done.code == 1
        assert "the asset 'broken.aimodel' cannot be read" in done.err
        with pytest.raises(AssetError, match=r"main\.mlirb is not the file that main\.hash describes"):
            package.load("broken.aimodel")


def test_a_save_that_is_interrupted_leaves_the_old_asset(
    patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _convert(patcomp, "net")
    before = (tmp_path / "net.aimodel" / "main.mlirb").read_bytes()

    def pieces(self: ProgramWriter) -> object:
        yield b"ML"
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgramWriter, "size", 2)
    monkeypatch.setattr(ProgramWriter, "pieces", pieces)
    patcomp("convert", "models.py:changed", "-o", "net.aimodel")
    assert (tmp_path / "net.aimodel" / "main.mlirb").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"models.py", "net.aimodel"}
    read_folder(tmp_path / "net.aimodel")


def _folder_of(name: str, folder: Path) -> Path:
    """An asset with the program of a case of the dialect."""
    folder.mkdir()
    data = native_programs()[name]
    (folder / "main.mlirb").write_bytes(data)
    (folder / "main.hash").write_bytes(hashlib.sha256(data).digest())
    (folder / "metadata.json").write_text('{"assetVersion": "2.0"}')
    return folder


def test_inspect_imports_little(patcomp: Command, tmp_path: Path) -> None:
    """Half a second of CPU is what it may take, and imports are most of it."""
    _convert(patcomp, "net")
    script = """
import sys
from patcomp.cli import whole_command
whole_command()(["inspect", "net.aimodel"], standalone_mode=False)
unwanted = ("torch", "xdsl", "numpy", "networkx", "sympy", "coreai", "patcomp.ir.types", "patcomp.patterns")
print("imported", [name for name in unwanted if name in sys.modules])
"""
    root = str(Path(package.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert "function main" in done.stdout
    assert done.stdout.splitlines()[-1] == "imported []"


def test_what_patcomp_does_not_know_is_read_by_the_toolchain(
    patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _folder_of("delegate", tmp_path / "delegate.aimodel")
    assert "aicode.execution.delegate_v2" in patcomp("inspect", path.name).out
    done = patcomp("opt", path.name)
    assert done.code == 1
    assert "the asset has the op execution.delegate_v2, which patcomp does not know" in done.err
    monkeypatch.delitem(sys.modules, "coreai.authoring")
    pytest.importorskip("coreai.authoring")
    done = patcomp("opt", path.name)
    assert done.code == 0, done.err
    assert "coreai.delegate" in done.out


def test_inputs_that_do_not_fit_are_named(patcomp: Command) -> None:
    _convert(patcomp, "sums")
    asset = package.load("sums.aimodel")
    x = np.ones(4, np.float32)
    with pytest.raises(UnknownNameError, match="there is no entry point 'mian'; there are main"):
        asset.evaluate({"x": x}, entrypoint="mian")
    with pytest.raises(EvaluationError, match="y"):
        asset.evaluate({"y": x})
    with pytest.raises(EvaluationError, match="x"):
        asset.evaluate({"x": np.ones(5, np.float32)})
    with pytest.raises(ValueError, match="an asset's writer is 'python' or 'coreai', got 'rust'"):
        save_asset(asset.module, "other.aimodel", writer="rust")  # type: ignore[arg-type]


def test_a_system_without_locks_of_files(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no `fcntl`."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    _convert(patcomp, "sums", "sums")
    assert {path.name for path in tmp_path.iterdir()} == {"models.py", "sums.aimodel"}
    assert package.load("sums.aimodel").function_names == ["main"]

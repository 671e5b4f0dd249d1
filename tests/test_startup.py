"""What the command and a first conversion import: tools for text start without PyTorch, slow modules when needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from patcomp import TorchConverter

_WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"{name} is imported", name=name)

sys.meta_path.insert(0, Refuse())
sys.argv = ["patcomp", *sys.argv[1:]]
from patcomp.cli import main
main()
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8, eps=1e-6)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(self.norm(x))).softmax(-1) + x


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT_TORCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _without_torch(*arguments: str) -> str:
    done = _run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_needs_no_torch() -> None:
    assert "why-not" in _without_torch("--help")


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    exported = torch.export.export(Block().eval(), (torch.rand(2, 8),))
    for name, text in TorchConverter().add_exported_program(exported).to_coreai().stages.items():
        (folder / f"{name}.mlir").write_text(str(text))
    return folder


def test_opt_verifies_and_prints_without_torch(stages: Path) -> None:
    assert "aten.addmm" in _without_torch("opt", str(stages / "import.mlir"))
    assert "coreai.invoke" in _without_torch("opt", str(stages / "optimize.mlir"))


def test_opt_runs_stages_without_torch(stages: Path) -> None:
    made = _without_torch("opt", str(stages / "import.mlir"), "-p", "normalize,recover,lower,outline,state")
    assert "coreai.invoke" in made
    assert "aten." not in made


def test_only_computing_constants_needs_torch(stages: Path) -> None:
    assert "coreai.invoke" in _without_torch("opt", str(stages / "optimize.mlir"), "-p", "optimize")
    done = _run("opt", str(stages / "state.mlir"), "-p", "optimize")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: stage optimize: it computes constants with PyTorch, which cannot be imported",
        "more: patcomp help StageError",
    ]


def test_a_conversion_imports_nothing_that_it_does_not_use() -> None:
    code = """
import sys, torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4)).eval()
exported = torch.export.export(model, (torch.rand(2, 4),))
before = set(sys.modules)
from patcomp import TorchConverter
program = TorchConverter().add_exported_program(exported).to_coreai()
assert "coreai.invoke" in program.text()
slow = {"networkx", "torch.nn.modules.linear_cross_entropy", "torch.ao.quantization.fx"}
print(*sorted(slow & (set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.fixture(scope="module")
def asset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    exported = torch.export.export(Block().eval(), (torch.rand(2, 8),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    return program.save_asset(tmp_path_factory.mktemp("asset") / "block.aimodel", writer="python").path


def test_an_asset_runs_without_torch(asset: Path, tmp_path: Path) -> None:
    """Neither the command imports PyTorch, nor the process of the runtime."""
    pytest.importorskip("coreai")
    (tmp_path / "torch.py").write_text("raise RuntimeError('PyTorch is imported')\n")
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "patcomp", "run", str(asset)],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2x8xf32" in done.stdout


def test_the_evaluator_imports_no_sympy(asset: Path) -> None:
    """The objects of PyTorch are left out of what the garbage collector looks through."""
    code = """
import gc, sys
from patcomp.cli import whole_command
whole_command()([*sys.argv[1:], "--backend", "evaluator"], standalone_mode=False)
assert gc.isenabled() and gc.get_freeze_count() > 100_000
print(*[name for name in ("torch", "sympy") if name in sys.modules])
"""
    command = [sys.executable, "-c", code, "run", str(asset)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2x8xf32" in done.stdout
    assert done.stdout.splitlines()[-1] == "torch"


def test_imports_do_not_wait_for_the_garbage_collector() -> None:
    """Each full collection would look through all objects of PyTorch."""
    code = """
import gc, torch
rounds = []
gc.callbacks.append(lambda phase, about: rounds.append(about["generation"]))
from patcomp import TorchConverter
assert TorchConverter and gc.isenabled()
assert 2 not in rounds, rounds
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""What the command and a first conversion import: tools for text start without PyTorch, slow modules when needed."""

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
    assert done.stderr == "error: stage optimize: it computes constants with PyTorch, which cannot be imported\n"


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

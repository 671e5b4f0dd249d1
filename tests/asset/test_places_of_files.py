"""An asset does not tell where the file of its model was: places in it are bare, or below the outermost package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from patcomp import TorchConverter
from patcomp.emit.stored.folder import PROGRAM
from patcomp.frontend_torch.fx.provenance import _portable

MODEL = """import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2 + 1)
"""


def saved(folder: Path, out: Path) -> dict[str, bytes]:
    """The files of the asset of the model in a folder, written in Python."""
    folder.mkdir(parents=True)
    (folder / "net.py").write_text(MODEL)
    spec = importlib.util.spec_from_file_location("net", folder / "net.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = TorchConverter().add_exported_program(torch.export.export(module.Net(), (torch.ones(2, 3),))).to_coreai()
    program.save_asset(out, writer="python")
    return {str(each.relative_to(out)): each.read_bytes() for each in sorted(out.rglob("*")) if each.is_file()}


def test_equal_models_in_three_folders_are_equal_assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.chdir(tmp_path)
    made = [saved(tmp_path / name, tmp_path / f"{number}.aimodel") for number, name in enumerate(("a", "b/c", "d"))]
    assert made[0] == made[1] == made[2]
    assert b"net.py" in made[0][PROGRAM]
    assert b"b/c" not in made[1][PROGRAM]


def test_files_of_packages_are_below_the_outermost_one(tmp_path: Path) -> None:
    (tmp_path / "outer/inner").mkdir(parents=True)
    for folder in ("outer", "outer/inner"):
        (tmp_path / folder / "__init__.py").touch()
    assert _portable(str(tmp_path / "outer/inner/net.py")) == "outer/inner/net.py"
    assert _portable(str(tmp_path / "net.py")) == "net.py"
    assert _portable("/usr/lib/site-packages/transformers/models/llama.py") == "transformers/models/llama.py"

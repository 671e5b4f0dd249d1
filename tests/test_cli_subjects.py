"""What the user can name: all commands take the same things, and refuse others in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from tests.helpers.command import Command
from tests.models.tasks.folders import folder as save_folder

pytestmark = pytest.mark.usefixtures("one_child")

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 128)
    def forward(self, x):
        return self.linear(x).relu()

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
    def forward(self, x):
        self.total.add_(x)
        return self.total * 2

def net(): return Net().eval(), (torch.rand(2, 64),)
def counts(): return Counts().eval(), (torch.rand(4),)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each kind of thing."""
    pytest.importorskip("transformers")
    from patcomp import TorchConverter
    from patcomp.commands.models import load_exported

    place = tmp_path_factory.mktemp("subjects")
    (place / "models.py").write_text(MODELS)
    save_folder(place / "resnet", "ResNetForImageClassification")
    for name in ("net", "counts"):
        exported = load_exported(f"{place / 'models.py'}:{name}")
        program = TorchConverter().add_exported_program(exported).to_coreai()
        program.save_asset(place / f"{name}.aimodel", writer="python")
        if name == "net":
            torch.export.save(exported, place / "net.pt2")
            (place / "net.mlir").write_text(str(program))
    for bundle, roles in (("single", ("net",)), ("pair", ("net", "counts"))):
        (place / bundle).mkdir()
        assets = {role: f"{role}.aimodel" for role in roles}
        about = {"metadata_version": "0.2", "kind": "ours", "name": bundle, "assets": assets}
        (place / bundle / "metadata.json").write_text(json.dumps(about))
        for file in assets.values():
            shutil.copytree(place / file, place / bundle / file)
    return place


@pytest.fixture
def here(made: Path, patcomp: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in that folder."""
    monkeypatch.chdir(made)
    return patcomp


@pytest.mark.parametrize("subject", ["net.pt2", "models.py:net", "resnet"])
def test_models(here: Command, subject: str) -> None:
    for arguments in (
        *([["compress", subject, "--config", "8bit"]] if subject != "resnet" else []),
        ["verify", subject],
        ["diff", subject, subject],
        ["audit", subject, "--target", "gpu"],
        ["why-not", "rms_norm", subject],
        ["explain", subject, "relu" if subject != "resnet" else "relu_1"],
        ["run", subject, "--backend", "evaluator"],
    ):
        done = here(*arguments)
        assert done.code == 0, (arguments, done.err)
        assert done.out


def test_a_folder_and_its_asset(here: Command, tmp_path: Path) -> None:
    asset = str(tmp_path / "half.aimodel")
    assert here("convert", "resnet", "--half", "-o", asset, "--quiet").code == 0
    assert here("verify", "resnet", asset, "--half").code == 0
    assert here("diff", "resnet", asset, "--half").code == 0
    assert here("diff", "resnet", asset).code == 3


def test_an_asset_alone(here: Command) -> None:
    done = here("verify", "counts.aimodel")
    assert done.code == 0, done.err
    assert "against the reference evaluator: passed" in done.out
    assert [line.split()[1] for line in done.out.splitlines() if "runtime" in line] == ["mul", "b_total"]


def test_bundles(here: Command, tmp_path: Path) -> None:
    done = here("verify", "pair")
    assert done.code == 0, done.err
    assert "warning: Apple's Swift package refuses it: kind is 'ours'" in done.err
    assert "net, function main\n" in done.out
    assert "counts, function main\n" in done.out
    assert set(json.loads(here("run", "pair", "--json").out)) == {"net", "counts"}
    output = tmp_path / "out.npz"
    done = here("run", "pair", "--component", "counts", "-o", str(output), "--seed", "1")
    assert done.code == 0, done.err
    with np.load(output) as saved:
        assert set(saved.files) == {"mul", "b_total"}
    assert here("audit", "single", "--target", "gpu").code == 0
    assert here("diff", "single", "net.pt2").code == 0
    assert "models.py:11" in here("explain", "single", "models.py:11").out


@pytest.mark.parametrize("subject", ["net.mlir", "net.aimodel", "single"])
def test_what_is_converted_takes_no_options_of_models(here: Command, subject: str) -> None:
    done = here("diff", subject, "net.aimodel", "--half", "--dynamic", "x:0=batch")
    assert done.code == 2
    assert done.err.startswith(f"error: --half, --dynamic goes with a model, and {subject} is ")


def test_a_file_of_torchscript(patcomp: Command, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "net.jit", "w") as archive:
        for name in ("net/data.pkl", "net/constants.pkl", "net/code/__torch__.py"):
            archive.writestr(name, "")
    done = patcomp("convert", "net.jit")
    assert done.code != 0
    assert "net.jit is TorchScript, and holds no exported program; write a FILE.py" in done.err

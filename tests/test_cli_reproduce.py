"""The manifest of an asset, and `patcomp reproduce`."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.emit.files.manifest import manifest_in
from tests.helpers.command import Command

NETS = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64)).eval(), (torch.rand(2, 64),)

def random():
    return nn.Linear(64, 64).eval(), (torch.rand(2, 64),)
"""


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(NETS)
    return path


def manifest_of(asset: Path) -> dict[str, Any]:
    return manifest_in(json.loads((asset / "metadata.json").read_text()))


def test_the_same_bytes_or_what_changed(patcomp: Command, nets: Path) -> None:
    done = patcomp(
        "convert", f"{nets}:net", "--half", "--compress", "w8", "-q", "-o", "net.aimodel", "--text", "a.mlir"
    )
    assert done.code == 0, done.err
    asset = nets.parent / "net.aimodel"
    made = manifest_of(asset)
    recipe = made["recipe"]
    assert recipe["command"] == "convert"
    assert recipe["arguments"] == ["nets.py:net", "--compress", "w8", "--half"]
    assert recipe["files"] == {"nets.py": hashlib.sha256(NETS.encode()).hexdigest()}
    assert made["rules"]["recover"] == {"rms_norm": 1}
    assert made["options"]["composites"] == "all"
    assert str(nets.parent) not in (asset / "metadata.json").read_text()

    done = patcomp("reproduce", "net.aimodel")
    assert (done.code, done.out.splitlines()[-1]) == (0, "every byte is the same"), done.out + done.err
    assert "running: patcomp convert nets.py:net --compress w8 --half" in done.err

    elsewhere = nets.rename(nets.with_name("moved.py"))
    done = patcomp("reproduce", "net.aimodel")
    assert done.code == 1
    assert "net.aimodel was made of nets.py, which is not here; run the command in the folder where it was" in done.err
    assert patcomp("reproduce", "net.aimodel", "--source", f"{elsewhere}:net").code == 0
    elsewhere.write_text(NETS.replace("manual_seed(0)", "manual_seed(1)"))
    done = patcomp("reproduce", "net.aimodel", "--source", "moved.py:net", "--json", "-o", "new.aimodel")
    found = json.loads(done.out)
    assert (done.code, found["same"], found["weights"]) == (3, False, ["_0.weight"])
    assert found["files"]["main.mlirb"] == found["files"]["metadata.json"] == "differs"
    assert list(found["changes"]) == ["recipe: files: nets.py"]
    assert manifest_of(nets.parent / "new.aimodel")["options"] == made["options"]


def test_random_weights_are_told(patcomp: Command, nets: Path) -> None:
    assert patcomp("convert", "nets.py:random", "-q").code == 0
    done = patcomp("reproduce", "nets-random.aimodel")
    assert done.code == 3
    assert "versions and files are the same: the model draws its weights at random" in done.out


def test_another_version_is_told(patcomp: Command, nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert patcomp("convert", "nets.py:net", "-q", "--target", "cpu").code == 0
    monkeypatch.setattr("patcomp.emit.files.manifest.__version__", "0.0.9")
    done = patcomp("reproduce", "nets-net.aimodel")
    assert done.code == 3
    assert "version: 0.1.0, now 0.0.9" in done.out
    assert "the program and its weights are the same; what is said about them is not" in done.out


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    exported = torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    return program.save_asset(tmp_path_factory.mktemp("saved") / "net.aimodel", writer="python").path


@pytest.mark.parametrize(
    ("recipe", "complaint"),
    [
        (None, "net.aimodel names no command that made it: it was saved from Python"),
        ({"command": "run", "arguments": ["a"], "files": {}}, "is none that patcomp writes"),
        ({"command": "convert", "arguments": [], "files": {}}, "is none that patcomp writes"),
        ({"command": "convert", "arguments": ["a", "--text", "b"], "files": {}}, "has --text, which patcomp does not"),
        ({"command": "convert", "arguments": ["a", "-o", "b"], "files": {}}, "has -o, which patcomp does not"),
        ({"command": "convert", "arguments": ["a", "--html=b"], "files": {}}, "has --html=b, which patcomp does not"),
        ({"command": "convert", "arguments": ["a", "--trusted"], "files": {}}, "was made with --trusted, which runs"),
        ({"command": "convert", "arguments": ["a"], "files": {"b.py": ""}}, "was made of b.py, which is not here"),
    ],
)
def test_recipes_that_are_not_run(
    patcomp: Command, saved: Path, tmp_path: Path, recipe: dict[str, Any] | None, complaint: str
) -> None:
    asset = shutil.copytree(saved, tmp_path / "net.aimodel")
    metadata = json.loads((asset / "metadata.json").read_text())
    if recipe is not None:
        metadata["creatorDefinedMetadata"]["patcomp.recipe"] = json.dumps(recipe)
    (asset / "metadata.json").write_text(json.dumps(metadata))
    done = patcomp("reproduce", "net.aimodel")
    assert done.code in (1, 2)
    assert complaint in done.err
    assert {each.name for each in tmp_path.iterdir()} == {"net.aimodel"}

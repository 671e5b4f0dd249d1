"""The options of `patcomp convert`: how a model is exported, checked and reported."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.commands import progress
from patcomp.evaluate.verification import OutputError, Verification
from patcomp.program.units import size_text
from tests.helpers.command import Command

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y=None):
        z = self.linear(x).relu()
        return z if y is None else z + y

class Counts(nn.Module):
    def forward(self, x):
        return x.argmax(-1) + 2

def net(): return Net().eval(), (torch.rand(2, 4),)
def two(): return Net().eval(), {"y": torch.rand(2, 4), "x": torch.rand(2, 4)}
def counts(): return Counts().eval(), (torch.rand(2, 4),)

class Noisy(nn.Module):
    def forward(self, x):
        return x.softmax(-1) + torch.randn_like(x)

def noisy(): return Noisy().eval(), (torch.rand(2, 4),)
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)


def converted(patcomp: Command, function: str, *options: str) -> dict[str, Any]:
    """What `convert --json` says."""
    done = patcomp("convert", f"models.py:{function}", "--text", "out.mlir", "--json", *options)
    assert done.code == 0, done.err
    data = json.loads(done.out)
    return data | data["signatures"]["main"]


def test_json_has_what_the_tables_say(patcomp: Command) -> None:
    data = converted(patcomp, "net", "--verify")
    assert [value["name"] for value in data["inputs"]] == ["x"]
    assert [stage["name"] for stage in data["stages"]][:2] == ["normalize", "recover"]
    assert data["verification"]["passed"]
    assert (data["text"], data["asset"]) == ("out.mlir", None)


def test_dynamic_dimensions(patcomp: Command) -> None:
    data = converted(
        patcomp, "two", "--dynamic", "x:0=batch:1..64", "--dynamic", "y:0=batch", "--verify", "--input-names", "a,b"
    )
    assert {value["name"]: value["shape"] for value in data["inputs"]} == {"a": ["batch", 4], "b": ["batch", 4]}
    assert data["verification"]["passed"]


def test_random_numbers_become_inputs(patcomp: Command) -> None:
    refused = patcomp("convert", "models.py:noisy", "--text", "out.mlir")
    assert refused.code == 1
    assert "--random inputs" in refused.err
    data = converted(patcomp, "noisy", "--random", "inputs", "--verify", "--half", "--dynamic", "x:0=batch")
    assert data["verification"]["passed"]
    x, noise = data["inputs"]
    assert "distribution" not in x
    assert noise["distribution"] == "standard normal"
    assert noise["shape"] == x["shape"] == ["batch", 4]
    assert noise["element_type"] == "f16"
    assert "coreai.softmax" in patcomp("explain", "models.py:noisy", "softmax").out  # questions need no option


def test_half_and_wide_numbers(patcomp: Command) -> None:
    assert converted(patcomp, "net", "--half", "--verify")["outputs"][0]["element_type"] == "f16"
    assert converted(patcomp, "net", "--bfloat16")["inputs"][0]["element_type"] == "bf16"
    assert converted(patcomp, "counts")["outputs"][0]["element_type"] == "si32"
    data = converted(patcomp, "counts", "--int64", "keep", "--output-names", "best", "--strict")
    assert (data["outputs"][0]["element_type"], data["outputs"][0]["name"]) == ("si64", "best")


def test_quiet(patcomp: Command) -> None:
    done = patcomp("convert", "models.py:net", "--text", "out.mlir", "--verify", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_stages_are_logged(patcomp: Command, caplog: pytest.LogCaptureFixture) -> None:
    assert patcomp("--log-level", "info", "convert", "models.py:net", "--text", "out.mlir").code == 0
    assert any("stage lower: " in record.getMessage() for record in caplog.records)
    assert patcomp("--log-level", "loud", "ops").code == 2
    patcomp("--log-level", "warning", "--help")


def test_wrong_numbers_are_not_saved(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("coreai")
    asked = []

    def wrong(self: AIProgram, model: nn.Module, inputs: Any, *, by: str = "output", **options: Any) -> Verification:
        asked.append((isinstance(inputs[0], torch.Tensor), by))
        return Verification((OutputError("relu", "evaluator", 1.0, 1.0, 0.0),))

    monkeypatch.setattr(AIProgram, "verify_against", wrong)
    done = patcomp("convert", "models.py:net", "-o", "net.aimodel", "--text", "net.mlir", "--verify", "--json")
    assert done.code == 3
    assert asked == [(True, "output"), (True, "module")]
    assert "the numbers differ from PyTorch's; net.aimodel is not written" in done.err
    assert json.loads(done.out)["asset"] is None
    assert not (tmp_path / "net.aimodel").exists()
    assert (tmp_path / "net.mlir").exists()


def test_a_file_without_inputs_is_found_before_the_conversion(
    patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = torch.export.export(nn.Linear(4, 4).eval(), (torch.rand(2, 4),))
    exported.example_inputs = None
    torch.export.save(exported, tmp_path / "net.pt2")
    monkeypatch.setattr(TorchConverter, "to_coreai", lambda *_, **__: pytest.fail("it must be found before"))
    done = patcomp("convert", "net.pt2", "--text", "net.mlir", "--verify")
    assert (done.code, "net.pt2 holds no example inputs" in done.err) == (1, True), done.err


def test_a_report(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def html(program: AIProgram, path: Path, *, verification: Verification, command: str) -> None:
        path.write_text(f"{program!r} {verification.passed} {len(verification.modules)} {command}")

    monkeypatch.setattr(AIProgram, "html", html)
    data = converted(patcomp, "net", "--html", "report.html", "--verify")
    assert data["report"] == "report.html"
    assert "@main" in (tmp_path / "report.html").read_text()
    assert "patcomp convert" in (tmp_path / "report.html").read_text()
    assert " True 0" not in (tmp_path / "report.html").read_text()  # it has the numbers of each module
    (tmp_path / "out").mkdir()
    done = patcomp("convert", "models.py:net", "--text", "a", "--html", "out")
    assert (done.code, "--html out is a folder" in done.err) == (2, True)


class Terminal:
    """A console on a terminal that notes what is shown."""

    is_terminal = True
    events: list[str]

    def __init__(self, **options: object) -> None:
        self.events = Terminal.events

    def status(self, what: str) -> Terminal:
        self.what = what
        return self

    def start(self) -> None:
        self.events.append(f"start {self.what}")

    def stop(self) -> None:
        self.events.append(f"stop {self.what}")

    def update(self, line: Table) -> None:
        console = Console(width=80)
        with console.capture() as capture:
            console.print(line)
        self.events.append(" ".join(capture.get().translate({ord(each): "" for each in "━╸╺"}).split()))


def test_progress_is_shown_for_slow_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "Console", Terminal)
    Terminal.events = []
    with progress.working("a quick step"):
        pass
    assert Terminal.events == ["stop a quick step"]
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with progress.working("a slow step"):
        while len(Terminal.events) < 2:
            time.sleep(0.001)
    with progress.working("a quiet step", wanted=False):
        pass
    assert Terminal.events == ["stop a quick step", "start a slow step", "stop a slow step"]


def test_bytes_that_are_written_are_shown(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.setattr(progress, "Console", Terminal)
    Terminal.events = []
    done = patcomp("convert", "models.py:net", "-o", "net.aimodel", "--writer", "python")
    assert done.code == 0, done.err
    size = size_text((tmp_path / "net.aimodel" / "main.mlirb").stat().st_size)
    assert f"writing net.aimodel {size} of {size}" in Terminal.events
    with progress.working("half a step") as advance:
        advance(2_000_000, 8_000_000)
    assert "half a step 2.0 MB of 8.0 MB" in Terminal.events


def test_completion(patcomp: Command) -> None:
    assert "--install-completion" in patcomp("--help").out


OWN_TARGET = """
from patcomp.patterns import op_rule
from patcomp.targets import Target

mine = Target("mine")


@op_rule("target", "coreai.relu", name="relu as a maximum", targets=("mine",))
def relu_as_maximum(op, c):
    return c.broadcasting_maximum(op.input, 0.0)
"""


def test_a_target_of_a_catalog(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_TARGET)
    converted(patcomp, "net", "--catalog", "own.py", "--target", "mine")
    assert "coreai.decomposable.broadcasting_maximum" in (tmp_path / "out.mlir").read_text()
    without = ("--catalog", "own.py", "--target", "mine", "--without", "relu as a maximum")
    converted(patcomp, "net", *without)
    assert "coreai.relu" in (tmp_path / "out.mlir").read_text()
    done = patcomp("convert", "models.py:net", "--catalog", "own.py", "--target", "yours")
    assert done.code
    assert "there is no target 'yours'; there are 'cpu', 'gpu', 'neural_engine', 'mine'" in done.err

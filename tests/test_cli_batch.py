"""`patcomp convert --batch`, and `convert_batch` with any executor."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from patcomp.commands import batch
from patcomp.commands.batch import BatchJob, BatchResult, convert_batch, convert_one, junit
from patcomp.commands.convert import jobs_in
from tests.helpers import warm
from tests.helpers.command import Command

MODELS = """
import os
import torch
from torch import nn

def good(): return nn.Linear(4, 4).eval(), (torch.rand(2, 4),)
def aborting(): os.abort()
"""

BATCH = """
[defaults]
verify = true
recover = ["rms_norm", "layer_norm"]

[[models]]
model = "nets/models.py:good"
text = "good.mlir"
dynamic = ["x:0=batch:1..8"]
report = false

[[models]]
name = "broken"
model = "nets/models.py:aborting"
input_names = ["a", "b"]
"""

OTHER_NAME = BATCH.replace("x:0", "input:0")


class Immediately(Executor):
    """An executor that is none of Python's own."""

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **keywords))
        return future


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/models.py").write_text(MODELS)
    path = tmp_path / "models.toml"
    path.write_text(OTHER_NAME)
    return path


def test_jobs_of_a_file(file: Path) -> None:
    good, broken = jobs_in(file)
    defaults = ("--verify", "--recover", "rms_norm,layer_norm")
    assert good == BatchJob(
        "good", ("nets/models.py:good", *defaults, "--text", "good.mlir", "--dynamic", "input:0=batch:1..8"),
        str(file.parent),
    )  # fmt: skip
    assert broken.arguments[-4:] == ("--input-names", "a,b", "--output", "broken.aimodel")


def test_bundles_have_the_name_that_convert_gives_them(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(
        '[[models]]\nmodel = "a.gguf"\n[[models]]\nmodel = "b"\nkind = "llm"\nset = ["prefill=8", "hidden=true"]'
    )
    first, second = jobs_in(path)
    assert first.arguments == ("a.gguf",)
    assert second.arguments == ("b", "--kind", "llm", "--set", "prefill=8", "--set", "hidden=true")


def in_this_process(arguments: list[str], **options: Any) -> Any:
    """A command in a process that has PyTorch loaded, in place of a new one."""
    return warm.run(Path(options["cwd"]), *arguments[1:])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch.subprocess, "run", in_this_process)


@pytest.mark.usefixtures("quick")
def test_a_conversion_that_aborts_does_not_end_the_others(file: Path) -> None:
    seen: list[str] = []
    good, broken = convert_batch(jobs_in(file), Immediately(), done=lambda result: seen.append(result.name))
    assert good.data is not None
    assert good, good.log
    assert good.data["signatures"]["main"]["inputs"][0]["shape"] == ["batch", 4]
    assert good.data["verification"]["passed"]
    assert (file.parent / "good.mlir").exists()
    assert not broken
    assert broken.code < 0
    assert sorted(seen) == ["broken", "good"]


class Losing(Executor):
    """An executor that loses its workers."""

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(ConnectionError("the worker is lost"))
        return future


def test_errors_of_the_executor_are_results(file: Path) -> None:
    results = convert_batch(jobs_in(file), Losing())
    assert [(each.code, each.reason) for each in results] == [(1, "error: ConnectionError: the worker is lost")] * 2


def result(name: str, code: int, log: str = "") -> BatchResult:
    return BatchResult(name, code, 1.5, {"ops": 7} if code == 0 else None, log)


def test_the_command(patcomp: Command, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"good": result("good", 0), "broken": result("broken", 1, "stages\nerror: \x1b[31mno\x00 rule\nsee there")}
    monkeypatch.setattr(batch, "convert_one", lambda job: ends[job.name])
    done = patcomp("convert", "--batch", "models.toml", "--jobs", "2", "--junit", "out/junit.xml")
    assert done.code == 1
    assert "FAILED broken in 1.5 s: error: " in done.err
    assert "converted" in done.out
    suite = ET.parse(file.parent / "out/junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures"), suite.get("time")) == (
        "2",
        "1",
        "0",
        "3.000",
    )
    assert suite[1][0].get("message") == "error: no rule"
    ends["broken"] = result("broken", 3, "error: the numbers differ")
    done = patcomp("convert", "--batch", "models.toml", "--json", "--quiet")
    assert done.code == 3
    assert [each["verdict"] for each in json.loads(done.out)] == ["converted", "WRONG NUMBERS"]
    assert done.err == "WRONG NUMBERS broken in 1.5 s: error: the numbers differ\n"
    assert "<failure" in junit(list(ends.values()))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models = 3", r"must have a table [[models]] for each model"),
        ("[[models]", "is not TOML"),
        ("[[models]]\nmodel = 'a.pt2'\n[default]\n", "has default; it may have [defaults] and [[models]] only"),
        ("[[models]]\nname = 'a'\n", "needs a model"),
        ("[[models]]\nmodel = 'a.pt2'\nverfy = true\n", "a: verfy is not an option of convert; there are verify"),
        ("[[models]]\nmodel = 'a.pt2'\nbatch = 'x'\n", "a: batch is not an option of convert"),
        ("[[models]]\nmodel = 'a.pt2'\nverify = 'yes'\n", "a: verify must be true or false, got 'yes'"),
        ("[[models]]\nmodel = 'a.pt2'\nint64 = true\n", "a: int64 must be a text or a list of texts, got True"),
        ("[[models]]\nmodel = 'a.pt2'\n[[models]]\nmodel = 'a.pt2'\n", "two models have the same name, a"),
        (
            "[defaults]\noutput = 'a.aimodel'\n[[models]]\nmodel = 'a.pt2'\n[[models]]\nmodel = 'b.pt2'\n",
            "two models have the same output, ",
        ),
    ],
)
def test_files_of_another_form(patcomp: Command, tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "models.toml").write_text(text)
    done = patcomp("convert", "--batch", "models.toml")
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name a MODEL to convert, or a file of models with --batch"),
        (["net.pt2", "--jobs", "2"], "--jobs and --junit go with --batch"),
        (["net.pt2", "--verify", "--batch", "models.toml"], "--batch does not go with model, --verify"),
        (["--batch", "models.toml", "--jobs", "0"], "--jobs must be 1 or more"),
    ],
)
@pytest.mark.usefixtures("file")
def test_wrong_usage(patcomp: Command, arguments: list[str], complaint: str) -> None:
    done = patcomp("convert", *arguments)
    assert (done.code, complaint in done.err) == (2, True), done.err


def test_the_process_of_a_job_finds_patcomp(tmp_path: Path) -> None:
    ended = convert_one(BatchJob("missing", ("missing.pt2",), str(tmp_path)))
    assert (ended.code, ended.data) == (1, None)
    assert ended.reason.startswith("error: there is no file or folder missing.pt2")

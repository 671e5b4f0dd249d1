"""`patcomp batch`, and `convert_batch` with any executor."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
import time
import xml.etree.ElementTree as ET
from concurrent.futures import Executor, Future
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from patcomp.commands.batch import jobs_in
from patcomp.commands.batches import jobs
from patcomp.commands.batches.executors import convert_batch, executor_of
from patcomp.commands.batches.jobs import BatchJob, BatchResult, run_job
from patcomp.commands.batches.page import page
from patcomp.commands.batches.results import junit, pareto, result_row, write_results
from patcomp.commands.batches.warm import StoppedError, WarmPool
from patcomp.commands.common import UsageError
from tests.helpers import warm
from tests.helpers.command import Command

MODELS = """
import os
import torch
from torch import nn

def good(): return nn.Linear(4, 4).eval(), (torch.rand(2, 4),)
def aborting(): os.abort()
def sleeping():
    open("begun", "w").close()
    import time; time.sleep(600)
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
        str(file.parent), "good",
    )  # fmt: skip
    assert broken.arguments[-4:] == ("--input-names", "a,b", "--output", "broken.aimodel")


MATRIX = """
[defaults]
target = "cpu"
[matrix]
target = [false, "gpu"]
half = [true, false]
[[models]]
model = "nets/models.py:good"
"""


def test_a_matrix_is_every_combination(file: Path) -> None:
    file.write_text(MATRIX)
    found = jobs_in(file)
    assert [job.name for job in found] == ["good-half", "good", "good-gpu-half", "good-gpu"]
    assert {job.model for job in found} == {"good"}
    model, half, gpu = "nets/models.py:good", ("--half",), ("--target", "gpu")
    assert [job.arguments[:-2] for job in found] == [(model, *half), (model,), (model, *gpu, *half), (model, *gpu)]
    assert found[1].choices == {"target": "", "half": ""}
    assert found[2].choices == {"target": "gpu", "half": "half"}


def test_bundles_have_the_name_that_convert_gives_them(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(
        '[[models]]\nmodel = "a.gguf"\n[[models]]\nmodel = "b"\nkind = "llm"\nset = ["prefill=8", "hidden=true"]'
    )
    first, second = jobs_in(path)
    assert first.arguments == ("a.gguf",)
    assert second.arguments == ("b", "--kind", "llm", "--set", "prefill=8", "--set", "hidden=true")


def in_a_fork(folder: str, arguments: list[str]) -> Any:
    """A command in a process of the tests that has PyTorch loaded, in place of one of the pool."""
    return warm.run(Path(folder), "-m", "patcomp", *arguments)


def test_a_finished_conversion_is_not_run_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    ended: dict[str, Any] = {}

    def run(folder: str, arguments: list[str]) -> Any:
        runs.append(name := arguments[1].partition(":")[2])
        if name not in ended:  # once, because it takes seconds
            ended[name] = in_a_fork(folder, arguments)
        elif name == "good":
            (file.parent / "good.mlir").write_text("again")
        return ended[name]

    monkeypatch.setattr(jobs.POOL, "run", run)
    (file.parent / "records").mkdir()
    seen: list[str] = []

    def results() -> list[BatchResult]:
        runs.clear()
        records = str(file.parent / "records")
        return convert_batch(jobs_in(file), Immediately(), records=records, done=lambda each: seen.append(each.name))

    good, broken = results()
    assert good, good.log
    assert good.data is not None
    assert good.data["signatures"]["main"]["inputs"][0]["shape"] == ["batch", 4]
    assert good.data["verification"]["passed"]
    assert good.loss is not None
    assert good.loss < 1e-5
    assert good.bytes == (file.parent / "good.mlir").stat().st_size
    assert not broken
    assert broken.code == -signal.SIGABRT
    assert sorted(seen) == ["broken", "good"]

    again, broken = results()
    assert (again.verdict, again.data, broken.code) == ("kept", good.data, -signal.SIGABRT)
    assert runs == ["aborting"]

    (file.parent / "good.mlir").write_text("changed")
    assert results()[0].verdict == "converted"
    file.write_text(OTHER_NAME.replace("1..8", "1..9"))
    assert results()[0].verdict == "converted"
    (file.parent / "nets/models.py").write_text(MODELS + "# changed")
    assert results()[0].verdict == "converted"
    monkeypatch.setattr(jobs, "tool_versions", lambda: {"version": "next"})
    assert results()[0].verdict == "converted"
    assert results()[0].verdict == "kept"
    (file.parent / "records/good.json").write_text("{")
    monkeypatch.setattr(jobs, "_converted", lambda job: BatchResult(job.name, 1, 0.0, None, "error: it was run"))
    assert results()[0].reason == "error: it was run"


def test_a_pool_lives_on_after_an_abort_and_stops_at_once(file: Path) -> None:
    pool, folder = WarmPool(), str(file.parent)
    assert pool.run(folder, ["convert", "nets/models.py:aborting"]).returncode == -signal.SIGABRT
    (process,) = pool._idle
    missing = pool.run(folder, ["convert", "missing.pt2"])
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("error: there is no file or folder missing.pt2")
    assert pool._idle == [process]
    ends: list[BaseException] = []

    def sleep() -> None:
        with pytest.raises(StoppedError) as error:
            pool.run(folder, ["convert", "nets/models.py:sleeping"])
        ends.append(error.value)

    thread = threading.Thread(target=sleep)
    thread.start()
    while not (file.parent / "begun").exists() and thread.is_alive():
        thread.join(0.05)
    pool.stop()
    thread.join(30)
    assert len(ends) == 1
    assert process.poll() is not None
    with pytest.raises(StoppedError):
        pool.run(folder, ["inspect"])


class Losing(Executor):
    """An executor that loses its workers."""

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(ConnectionError("the worker is lost"))
        return future


def test_errors_of_the_executor_are_results(file: Path) -> None:
    results = convert_batch(jobs_in(file), Losing())
    assert [(each.code, each.reason) for each in results] == [(1, "error: ConnectionError: the worker is lost")] * 2


def result(name: str, code: int, log: str = "", **fields: Any) -> BatchResult:
    return BatchResult(name, code, 1.5, {"ops": 7} if code == 0 else None, log, **fields)


FILES = {"index.html", "junit.xml", "records", "results.csv", "results.json"}


def test_the_command(patcomp: Command, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"good": result("good", 0), "broken": result("broken", 1, "stages\nerror: \x1b[31mno\x00 rule\nsee there")}
    monkeypatch.setattr(jobs, "_converted", lambda job: ends[job.name])
    done = patcomp("batch", "models.toml", "--jobs", "2", "--output", "out")
    assert done.code == 1
    assert "FAILED broken in 1.5 s: error: " in done.err
    assert "converted" in done.out
    assert {each.name for each in (file.parent / "out").iterdir()} - {"results.parquet"} == FILES
    suite = ET.parse(file.parent / "out/junit.xml").getroot()[0]
    counts = [suite.get(name) for name in ("tests", "errors", "failures", "skipped", "time")]
    assert counts == ["2", "1", "0", "0", "3.000"]
    assert suite[1][0].get("message") == "error: no rule"
    ends["broken"] = result("broken", 3, "error: the numbers differ")
    done = patcomp("batch", "models.toml", "--json", "--quiet")
    assert done.code == 3
    assert [each["verdict"] for each in json.loads(done.out)] == ["converted", "WRONG NUMBERS"]
    assert done.err == "WRONG NUMBERS broken in 1.5 s: error: the numbers differ\n"
    assert (file.parent / "models-results/index.html").exists()
    assert "<failure" in junit(list(ends.values()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_results_are_written_if_a_signal_ends_the_command(
    patcomp: Command, file: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    pool = WarmPool()

    def run(folder: str, arguments: list[str]) -> Any:
        if arguments[1].endswith("good"):
            return CompletedProcess([], 0, "{}", "")
        os.kill(os.getpid(), number)
        while not pool._stopped:
            time.sleep(0.01)
        raise StoppedError

    monkeypatch.setattr(pool, "run", run)
    monkeypatch.setattr(jobs, "POOL", pool)
    monkeypatch.setattr("patcomp.commands.batch.POOL", pool)
    before = signal.getsignal(number)
    done = patcomp("batch", "models.toml")
    assert done.code == 128 + number
    assert signal.getsignal(number) is before
    folder = file.parent / "models-results"
    found = json.loads((folder / "results.json").read_text())
    assert [each["verdict"] for each in found] == ["converted", "not finished"]
    assert ET.parse(folder / "junit.xml").getroot()[0].get("skipped") == "1"
    assert "1 of 2 models are converted" in (folder / "index.html").read_text()
    assert [row["result"] for row in csv.DictReader((folder / "results.csv").open())] == ["converted", "not finished"]
    assert [each.name for each in (folder / "records").iterdir()] == ["good.json"]


def measured(name: str, size: int, loss: float, problems: int = 0, target: str = "") -> BatchResult:
    found = [{"is_advice": False}] * problems + [{"is_advice": True}]
    data = {"verification": {"errors": [], "loss": [{"max_rel": loss}]}, "audit": {"findings": found}, "asset": name}
    return BatchResult(name, 0, 1.0, data, "log <b>", "net", {"target": target}, size)


def test_the_best_conversions_are_known_and_shown(tmp_path: Path) -> None:
    results = [
        measured("net-plain", 100, 0.0),
        measured("net-w8", 50, 0.1),
        measured("net-pal8", 50, 0.2),
        measured("net-w4", 25, 0.2, problems=1),
        measured("net-few", 60, 0.3, target="gpu"),
        result("other", 1, "error: <script>", choices={"target": ""}),
    ]
    assert results[3].problems == 1
    best = pareto(results)
    assert best == ["net-plain", "net-w8", "net-w4", "net-few"]
    write_results(tmp_path, results)
    first, *_ = csv.DictReader((tmp_path / "results.csv").open())
    assert first == {
        "name": "net-plain", "model": "net", "target": "", "result": "converted", "seconds": "1.0", "bytes": "100",
        "ops": "", "loss": "0.0", "problems": "0", "best": "True", "written": "net-plain", "reason": "",
    }  # fmt: skip
    text = (tmp_path / "index.html").read_text()
    assert text == page(results, [result_row(each, each.name in best) for each in results])  # the same in every run
    assert text.count("★") == 5
    assert "<script" not in text
    assert "log <b>" not in text
    assert "<svg" in text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models = 3", r"must have a table [[models]] for each model"),
        ("[[models]", "is not TOML"),
        (
            "[[models]]\nmodel = 'a.pt2'\n[default]\n",
            "has default; it may have [defaults], [matrix] and",
        ),
        ("[matrix]\nsize = [1]\n[[models]]\nmodel = 'a.pt2'\n", "matrix: size is not an option of convert"),
        ("[matrix]\ntarget = 'cpu'\n[[models]]\nmodel = 'a.pt2'\n", "matrix: target must be a list of values"),
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
    done = patcomp("batch", "models.toml")
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["convert"], "name a MODEL to convert; `patcomp batch FILE` converts many"),
        (["batch", "models.toml", "--jobs", "0"], "--jobs must be 1 or more"),
        (["batch", "models.toml", "--output", "models.toml"], "--output models.toml is a file; name a folder"),
        (["batch", "models.toml", "--executor", "slurm:x"], "--executor is local, dask:ADDRESS"),
    ],
)
@pytest.mark.usefixtures("file")
def test_wrong_usage(patcomp: Command, arguments: list[str], complaint: str) -> None:
    done = patcomp(*arguments)
    assert (done.code, complaint in done.err) == (2, True), done.err


def test_a_worker_of_dask_that_dies_loses_nothing(file: Path) -> None:
    distributed = pytest.importorskip("distributed")
    (file.parent / "nets/models.py").write_text(MODELS + KILLER)
    tables = [f'[[models]]\nmodel = "nets/models.py:good"\nname = "n{number}"\n' for number in range(3)]
    file.write_text("".join([*tables, '[[models]]\nmodel = "nets/models.py:killer"\n']))
    (file.parent / "records").mkdir()
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        executor_of(f"dask:{cluster.scheduler_address}", 1) as executor,
    ):
        results = convert_batch(jobs_in(file), executor, records=str(file.parent / "records"))
    assert all(results), [each.log for each in results]
    assert (file.parent / "killed").exists()
    assert [run_job(job, str(file.parent / "records")).verdict for job in jobs_in(file)] == ["kept"] * 4


KILLER = """
def killer():
    if not os.path.exists("killed"):
        open("killed", "w").close()
        with open(f"/proc/{os.getppid()}/stat") as stat:  # the parent of the warm process is the worker
            os.kill(int(stat.read().rpartition(")")[2].split()[1]), 9)
        import time; time.sleep(600)
    return good()
"""


def test_executors_have_other_names() -> None:
    with pytest.raises(UsageError, match="got 'dask:'"), executor_of("dask:", 1):
        pass

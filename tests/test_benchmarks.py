"""The benchmark suite measures, writes its results, and makes the same report from them again."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks import causal_types, suite
from benchmarks.measurement import Job
from benchmarks.report import PEER, Report
from tests.helpers import warm

pytestmark = pytest.mark.xdist_group("benchmarks")  # which measures once

NAMES = {"model", "task", "compiler", "form", "round", "load"}


def measured(output: Path, *tasks: str) -> Path:
    """The output of a run on one tiny model. Its conversions run in processes that have PyTorch loaded."""
    run = subprocess.run

    def started(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        is_conversion = "benchmarks.measurement" in command and json.loads(command[-1])["task"] == "convert"
        return warm.run(options["cwd"], *command[1:]) if is_conversion else run(command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", started)
        suite.main(["--quick", "--only", "mlp-1", "--tasks", *tasks, "--output", str(output)])
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("benchmarks"), "convert")


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


@pytest.mark.slow
def test_a_run_measures_every_form(folder: Path) -> None:
    converted = results_of(folder)["measurements"]
    assert not any("error" in each for each in converted), converted
    assert {each["form"] for each in converted} == {"decomposed", "exported"}
    for each in converted:
        assert each.keys() >= NAMES
        assert each["nodes"] > 8
        assert each["ops"] > 8
        assert each["weights_bytes"] > 2**19
        assert {"import", "recover", "lower"} <= each["stages"].keys()


def test_the_report_is_made_again_from_results(folder: Path, tmp_path: Path) -> None:
    suite.main(["--from", str(folder / "results.json"), "--output", str(tmp_path)])
    page = (tmp_path / "report.md").read_text()
    assert page == (folder / "report.md").read_text()
    assert page.count("| mlp-1 | patcomp | ") == 2
    assert "load average" in page


def test_ratios_compare_measurements_of_the_same_round(folder: Path, tmp_path: Path) -> None:
    """The results of a peer that takes two and four times as long as patcomp."""
    results = results_of(folder)
    ours = [each for each in results["measurements"] if each["task"] == "convert" and each["form"] == "decomposed"]
    rounds = []
    for number, factor in enumerate((2, 4)):
        rounds += [each | {"round": number} for each in ours]
        times = ours[0]["first"]
        theirs = {"compiler": PEER, "round": number, "first": {name: times[name] * factor for name in times}}
        rounds += [each | theirs for each in ours]
    failed = {name: ours[0][name] for name in NAMES} | {"compiler": PEER, "round": 2, "error": "exit status -6: abort"}
    saved = tmp_path / "other.json"
    saved.write_text(json.dumps(results | {"measurements": [*rounds, failed, ours[0] | {"round": 2}]}))
    suite.main(["--from", str(saved), "--output", str(tmp_path)])

    report = Report(results_of(tmp_path))
    assert report.ratios()["mlp-1"]["conversion"] == pytest.approx([0.5, 0.25])
    page = (tmp_path / "report.md").read_text()
    assert "0.38 (0.25-0.50)" in page
    assert "| geometric mean |  |  |  | 0.38 |" in page
    assert "exit status -6: abort" in page, "failures are listed"
    plot = ET.fromstring((tmp_path / "ratios.svg").read_text())
    assert [each.text for each in plot.iter("{http://www.w3.org/2000/svg}text")].count("mlp-1") == 1


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("coreai"), reason="needs the runtime")
def test_the_way_to_an_asset_is_measured(tmp_path: Path) -> None:
    (whole,) = results_of(measured(tmp_path, "whole"))["measurements"]
    assert {"export", "staging", "to_coreai", "asset"} == whole["seconds"].keys()
    assert whole["asset_bytes"] > 2**19, "the asset has the weights"


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("coreai"), reason="needs the runtime")
def test_programs_are_run_and_compared(tmp_path: Path) -> None:
    """The results with those of a peer that takes twice as long as patcomp, and has an op more."""
    results = results_of(measured(tmp_path / "run", "run"))
    (run,) = [each for each in results["measurements"] if each["task"] == "run"]
    programs = run["programs"]
    assert [(each["compiler"], each["target"]) for each in programs] == [("patcomp", ""), ("patcomp", "cpu")]
    assert [each["ops"] for each in programs] == [16, 8], "eight products, with transposes of their weights or without"
    assert all(each["milliseconds"] > 0 and each["deviation"] < 1e-5 for each in programs)

    peer = programs[0] | {"compiler": PEER, "ops": programs[0]["ops"] + 1}
    programs = [peer, *(each | {"ratio": ratio} for each, ratio in zip(programs, (0.5, 0.25), strict=True))]
    saved = tmp_path / "other.json"
    saved.write_text(json.dumps(results | {"measurements": [run | {"programs": programs}]}))
    suite.main(["--from", str(saved), "--output", str(tmp_path)])
    page = (tmp_path / "report.md").read_text()
    assert "| mlp-1 | 17 | 16 | 8 |" in page
    assert "0.50 (0.50-0.50)" in page
    (largest,) = [line for line in page.splitlines() if line.startswith("| largest")]
    assert [cell.strip() for cell in largest.split("|") if cell.strip()] == ["largest", "0.50", "0.25"]


def test_a_failed_measurement_says_why(tmp_path: Path) -> None:
    """Native code of the other compiler may abort its process, for instance."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho loading >&2\necho 'Assertion failed' >&2\nexit 3\n")
    python.chmod(0o755)
    job = Job("convert", "mlp-1", PEER, "decomposed", str(tmp_path))
    found = suite.Suite(str(python), str(tmp_path)).run(job)
    assert found["error"] == "exit status 3: Assertion failed"
    assert found.items() >= {"model": "mlp-1", "compiler": PEER}.items()


def test_a_page_of_types_is_read_again() -> None:
    """So that a run of some types keeps the others."""
    rows = [
        {"type": name, "outcome": outcome, "reason": reason}
        for name, outcome, reason in (
            ("gpt-sw3", "exact", ""), ("moshi", "exact", "by forward"), ("llama", "exact", ""),
            ("blt", "refused", "a | b"), ("git", "not done", "more than 6 minutes"),
        )
    ]  # fmt: skip
    assert [*causal_types.rows_of(causal_types.page(rows, "5.24.0")).values()] == rows

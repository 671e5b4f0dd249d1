"""The child process of the runtime: where it saves, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from patcomp.emit import native as module
from patcomp.emit.native import Native, ProcessDied
from patcomp.ir import coreai
from tests.helpers.joined import run_each
from tests.helpers.programs import program


def test_a_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE)
    runner = Native()
    runner._process = child
    runner.close()
    assert child.returncode == -9
    runner.close()  # there is none any more


def test_it_saves_in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, Any] = {}
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.update(options))
    Native("/a folder")._start()
    assert started["env"]["TMPDIR"] == "/a folder"


def test_programs_that_run_as_one_asset(native: Native) -> None:
    adds, divides = (program({"x": "1xsi32", "y": "1xsi32"}, body) for body in (coreai.add, coreai.divide))
    weight = program({"x": "300xf32"}, lambda x: coreai.add(x, coreai.constant(np.arange(300, dtype=np.float32))))
    calls = {
        "adds": (adds, {"x": np.int32([6]), "y": np.int32([3])}),
        "divides": (divides, {"x": np.int32([6]), "y": np.int32([3])}),
        "weight": (weight, {"x": np.ones(300, np.float32)}),
    }
    outputs = {name: results["y0"][-1].item() for name, results in run_each(native, calls).items()}
    assert outputs == {"adds": 9, "divides": 2, "weight": 300.0}
    assert {graph.properties["sym_name"].data for graph in adds.graphs} == {"main"}  # type: ignore[attr-defined]
    with pytest.raises(ProcessDied) as death:
        run_each(native, calls | {"divides": (divides, {"x": np.int32([6]), "y": np.int32([0])})})
    assert death.value.__notes__ == ["the program is divides"]

"""The child process of the runtime: where it saves, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from patcomp.emit import native as module
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.ir import IRModule, Value, coreai
from tests.helpers.joined import run_each
from tests.helpers.programs import program

ONES = np.ones(300, np.float32)
RAMP = np.arange(300, dtype=np.float32)


def test_a_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
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
    weight = program({"x": "300xf32"}, lambda x: coreai.add(x, coreai.constant(RAMP)))
    calls = {
        "adds": (adds, {"x": np.int32([6]), "y": np.int32([3])}),
        "divides": (divides, {"x": np.int32([6]), "y": np.int32([3])}),
        "weight": (weight, {"x": ONES}),
    }
    outputs = {name: results["y0"][-1].item() for name, results in run_each(native, calls).items()}
    assert outputs == {"adds": 9, "divides": 2, "weight": 300.0}
    assert {graph.properties["sym_name"].data for graph in adds.graphs} == {"main"}  # type: ignore[attr-defined]
    with pytest.raises(ProcessDied) as death:
        run_each(native, calls | {"divides": (divides, {"x": np.int32([6]), "y": np.int32([0])})})
    assert death.value.__notes__[1:] == ["the program is divides"]


def test_a_program_that_runs_again(native: Native) -> None:
    """It is compiled once; another program has other text or other weights."""
    one, two = (program({"x": "300xf32"}, lambda x, w=w: coreai.add(x, coreai.constant(w))) for w in (RAMP, 2 * RAMP))
    assert one.text() == two.text()

    def last(module: IRModule, x: float, **options: Any) -> float:
        return native.run(module, {"x": x * ONES}, **options)["y0"][-1].item()

    assert [last(one, 1), last(one, 2), last(two, 2), last(two, 5), last(one, 5)] == [300, 301, 600, 603, 304]
    with pytest.raises(NativeError, match="there is no entry point 'other'"):
        last(one, 1, entry="other")
    assert last(one, 1) == 300


def test_a_program_with_state_that_runs_again(native: Native) -> None:
    def body(handle: Value, x: Value) -> list[Value]:
        content, token = coreai.read_handle(handle, coreai.create_token())
        total = coreai.add(content, x)
        return [total, coreai.write_handle(handle, total, token)]

    module = program({"x": "2xf32"}, body, states={"total": "2xf32"})
    for start in (0.0, 0.0, 3.0):
        state = {"total": np.full(2, start, np.float32)}
        assert native.run(module, {"x": np.ones(2, np.float32)}, state)["y0"].tolist() == [start + 1] * 2
        assert state["total"].tolist() == [start + 1] * 2

"""The child process of the runtime: where it saves, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from patcomp.emit import native as module
from patcomp.emit.native import Native


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

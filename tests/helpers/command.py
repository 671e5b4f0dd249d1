"""The `patcomp` command in the process of the tests: what it prints, and how it ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from patcomp.__main__ import main
from patcomp.emit.native import Native

_MORE = re.compile(r"^more: patcomp help \w+\n", re.MULTILINE)
"""The line under an error that names what explains it; tests/test_errors.py tests it."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `err` is without the line that names what explains an error."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "err", _MORE.sub("", self.err))


Command = Callable[..., Outcome]


@pytest.fixture
def patcomp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["patcomp", *arguments])
        with pytest.raises(SystemExit) as ending:
            main()
        captured = capsys.readouterr()
        return Outcome(int(ending.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def one_child(monkeypatch: pytest.MonkeyPatch, native: Native) -> None:
    """Lets all commands use one child process, because starting one takes longer than most tests."""
    monkeypatch.setattr("patcomp.emit.reading.Native", lambda: native)
    monkeypatch.setattr(native, "close", lambda: None)

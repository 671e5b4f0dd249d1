"""Packages of others that add subcommands to `patcomp`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patcomp.commands.common import UsageError
from patcomp.commands.packages import packages, reader_of
from patcomp.commands.subjects import Subject

CODE = """
from patcomp.commands.packages import Commands

class Mine(Commands):
    def add_to(self, app):
        app.command("hello")(lambda name: print("hello", name))

COMMANDS = Mine()
"""


def _installed(folder: Path, value: str) -> None:
    """A package with an entry point, as pip installs it."""
    facts = folder / "mine-1.0.dist-info"
    facts.mkdir(parents=True)
    (folder / "mine.py").write_text(CODE)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[patcomp.commands]\nmine = {value}\n")


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    command = [sys.executable, "-m", "patcomp", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, cwd=folder)


def test_a_package_of_others(tmp_path: Path) -> None:
    _installed(tmp_path, "mine:COMMANDS")
    done = _run(tmp_path, "hello", "you")
    assert (done.returncode, done.stdout) == (0, "hello you\n"), done.stderr
    listed = {line.split()[0] for line in _run(tmp_path, "--help").stdout.splitlines() if line.startswith("  ")}
    assert listed >= {"convert", "convert-lm", "catalog", "rule", "prove", "hello"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("mine:NOTHING", "cannot be loaded: AttributeError"),
        ("mine:Commands", "must be an object of the class patcomp.commands.packages.Commands"),
    ],
)
def test_a_wrong_package_is_named(value: str, said: str, tmp_path: Path) -> None:
    _installed(tmp_path, value)
    done = _run(tmp_path, "hello", "you")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: the entry point mine = {value} of mine {said}")
    assert done.stderr.splitlines()[1:] == ["more: patcomp help PatcompError"]


def test_what_no_package_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {type(each).__name__ for each in packages()} == {"LabCommands", "ModelCommands", "OnnxCommands"}
    assert type(reader_of(Subject.BUNDLE)).__name__ == "ModelCommands"
    with pytest.raises(UsageError, match="no installed package reads a report; install patcomp again with pip"):
        reader_of(Subject.REPORT)

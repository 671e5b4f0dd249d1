"""Wrong uses of commands and of the Python API: one message each, of five lines at most, without a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest

from patcomp.errors import explanations
from tests.helpers.command import Command, Outcome
from tests.helpers.wrong_uses import make_folder

TABLE = tomllib.loads((Path(__file__).parent / "wrong_uses.toml").read_text())
MOST_LINES = 5


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the calls use; `place` is the folder."""
    for library in ("coreai", "diffusers", "transformers"):
        pytest.importorskip(library)
    place = tmp_path_factory.mktemp("wrong_uses").resolve()
    return make_folder(place) | {"place": place}


@pytest.fixture(autouse=True)
def in_the_folder(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, patcomp: Command) -> None:
    monkeypatch.chdir(names["place"])
    monkeypatch.setattr("patcomp.torchvision.misfit", lambda: None)  # it depends on what is installed
    warnings.simplefilter("ignore")


def check(said: str, wanted: str, place: Path) -> None:
    """Check a message, in which the folder's own path does not matter."""
    said = "\n".join(line.rstrip() for line in said.replace(f"{place}/", "").strip().splitlines())
    pattern = ".*".join(map(re.escape, wanted.strip().split("[...]")))
    assert re.fullmatch(pattern, said), f"{said}\n\nand not\n\n{wanted}"
    assert len(said.splitlines()) <= MOST_LINES
    assert "Traceback" not in said


def _without_help(said: str) -> str:
    """A message without its last line, which names the kind of error for `patcomp help`."""
    text, _, kind = said.rstrip("\n").rpartition("\nmore: patcomp help ")
    assert not text or kind in explanations()
    return text or said


def _files(folder: Path) -> list[Path]:
    """What is in a folder, but for what Python writes beside a module that it imports."""
    return sorted(path for path in folder.iterdir() if path.name != "__pycache__")


_WITHOUT_TORCH = """
import contextlib, io, json, shlex, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise RuntimeError("PyTorch is imported")

sys.meta_path.insert(0, Refuse())
from patcomp.__main__ import main

ends = []
for run in json.load(sys.stdin):
    sys.argv = ["patcomp", *shlex.split(run)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception as error:
            err.write(repr(error))
    ends.append((code, out.getvalue(), err.getvalue()))
json.dump(ends, sys.stdout)
"""


@pytest.fixture(scope="module")
def without_torch(names: dict[str, Any]) -> dict[str, Outcome]:
    """How the commands end that need no PyTorch, in a process that has none."""
    runs = [case["run"] for case in TABLE["command"] if "torch" not in case]
    command = [sys.executable, "-c", _WITHOUT_TORCH]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        command, input=json.dumps(runs), capture_output=True, text=True, cwd=names["place"], env=environment, check=True
    )
    return {run: Outcome(*end) for run, end in zip(runs, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("case", TABLE["command"], ids=lambda case: case["run"])
def test_commands(case: dict[str, Any], request: pytest.FixtureRequest, names: dict[str, Any]) -> None:
    before = _files(names["place"])
    if "torch" in case:
        done = request.getfixturevalue("patcomp")(*shlex.split(case["run"]))
    else:
        done = request.getfixturevalue("without_torch")[case["run"]]
    assert done.code == case["code"] != 0, done.err
    assert done.out == ""
    check(_without_help(done.err), case["says"], names["place"])
    assert _files(names["place"]) == before


@pytest.mark.parametrize("case", TABLE["call"], ids=lambda case: case["run"])
def test_calls(case: dict[str, Any], names: dict[str, Any]) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  (its class is in the table)
        eval(case["run"], dict(names))
    assert type(raised.value).__name__ == case["raises"]
    check(str(raised.value), case["says"], names["place"])


def test_the_table_is_long() -> None:
    assert len(TABLE["command"]) + len(TABLE["call"]) >= 120
    runs = [case["run"] for case in (*TABLE["command"], *TABLE["call"])]
    assert len(set(runs)) == len(runs)

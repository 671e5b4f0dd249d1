"""Each kind of error has a section with its cause and remedy, to which its messages lead."""

from __future__ import annotations

import ast
import builtins
import pickle
from pathlib import Path

import pytest

from patcomp.__main__ import main
from patcomp.errors import ParseError, UnsupportedError, explanations, help_for
from tests.helpers.command import Command

ROOT = Path(__file__).parents[1]
PACKAGES = ("patcomp", "patcomp_lab", "patcomp_models", "patterns_catalog", "special_functions_catalog")


def kinds_of_errors() -> set[str]:
    """The public classes below `PatcompError`, as the sources declare them."""
    declared: dict[str, set[str]] = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if "Error" not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)):
            declared[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    found, count = {"PatcompError"}, 0
    while len(found) > count:
        count = len(found)
        found |= {name for name, bases in declared.items() if bases & found}
    return {name for name in found if not name.startswith("_")}


def test_each_kind_of_error_has_a_cause_and_a_remedy() -> None:
    ours, sections = kinds_of_errors(), explanations()
    assert len(ours) > 20
    assert ours - set(sections) == set(), "write a section of patcomp/errors.md for each"
    assert {name for name in set(sections) - ours if not hasattr(builtins, name)} == set()
    for name, section in sections.items():
        cause, remedy = section.split("\n\n**Remedy.** ")
        assert cause.startswith("**Cause.** "), name
        assert remedy.strip(), name


def test_an_error_names_what_explains_it() -> None:
    error = ParseError("no IR")
    assert str(error) == "no IR"
    assert error.__notes__ == ["more: patcomp help ParseError"]
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__
    assert UnsupportedError("no", ()).__notes__ == ["more: patcomp help UnsupportedError"]
    assert help_for(FileNotFoundError) == "patcomp help OSError"
    assert help_for(KeyError) == "patcomp help LookupError"


def test_a_command_that_fails_names_what_explains_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["patcomp", "inspect", "none.aimodel"])
    with pytest.raises(SystemExit):
        main()
    *_, last = capsys.readouterr().err.splitlines()
    assert last == "more: patcomp help OSError"


def test_the_command_explains_errors_and_commands(patcomp: Command) -> None:
    told = patcomp("help", "StageError")
    assert told.code == 0
    assert told.out.startswith("StageError\n\nCause. A stage of the conversion failed")
    assert "--dump-stages" in patcomp("help", "convert").out
    everything = patcomp("help").out
    assert all(name in everything for name in explanations())
    wrong = patcomp("help", "StagError")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error: StagError is no kind of error and no command; did you mean StageError,")

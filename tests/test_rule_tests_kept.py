"""`patcomp rule test` keeps what passed, until anything changes that it depends on; `lint-catalog` stops early."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patcomp_lab.proof import examination, kept, lint
from patterns_catalog import default_rules
from tests.helpers.command import Command

RULES = """
from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.patterns import Capture, Rewrite
from patterns_catalog.optimize.algebra import algebra
from kept_helper import SAID


@algebra(example={"x": "2x3xf32"})
def relu_of_relu_again(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "relu(relu(x)) -> relu(x)"
    return Rewrite(a.relu(a.escaping(a.relu(x))), to=c.RELU(x))
"""
TEST = ("rule", "test", "kept_rules.py", "--no-runtime")


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch, patcomp: Command, tmp_path: Path) -> Iterator[list[str]]:
    """The names of the rules that are tested; the tests are short."""
    found: list[str] = []
    examine = examination.examine

    def recorded(rule: Any, *arguments: Any, **options: Any) -> Any:
        found.append(rule.name)
        return examine(rule, *arguments, programs=1, **options)

    monkeypatch.setattr(examination, "examine", recorded)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "kept_helper.py").write_text("SAID = 1\n")
    write(tmp_path)
    yield found
    sys.modules.pop("kept_helper", None)


def write(place: Path, target: str = "relu", more: str = "") -> None:
    from patcomp.commands.common import _catalog_file

    _catalog_file.cache_clear()
    sys.modules.pop("kept_helper", None)
    (place / "kept_rules.py").write_text(RULES.replace("RELU", target) + more)


def test_what_passed_is_kept(
    examined: list[str], patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = patcomp(*TEST)
    assert (first.code, examined) == (0, ["relu_of_relu_again"])
    second = patcomp(*TEST)
    assert (second.code, len(examined)) == (0, 1)
    title = "rule relu_of_relu_again"
    assert f"{title}, as tested before (--anew)" in second.out
    assert second.out.split("┏", 1)[1] == first.out.split("┏", 1)[1]
    assert title in first.out
    assert "before" not in first.out
    changes = [
        lambda: write(tmp_path, more="# a comment\n"),
        lambda: (write(tmp_path), (tmp_path / "kept_helper.py").write_text("SAID = 2\n")),
        lambda: monkeypatch.setenv("PATCOMP_OF_THIS_TEST", "1"),
        lambda: monkeypatch.setattr(kept, "version", lambda name: "0"),
    ]
    for count, change in enumerate(changes, 2):
        change()
        assert patcomp(*TEST).code == 0
        assert len(examined) == count
        assert patcomp(*TEST).code == 0
        assert len(examined) == count
    assert patcomp(*TEST, "--anew").code == 0
    assert len(examined) == len(changes) + 2


def test_a_wrong_rule_is_tested_each_time(examined: list[str], patcomp: Command, tmp_path: Path) -> None:
    write(tmp_path, "abs")
    for _ in range(2):
        done = patcomp(*TEST)
        assert done.code == 3
        assert "counterexample" in done.out
    assert len(examined) == 2
    assert not list(tmp_path.rglob("*.json"))


def test_a_folder_that_cannot_be_written(
    examined: list[str], patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done = patcomp(*TEST)
    assert done.code == 0
    assert "note: the tests of relu_of_relu_again are not kept for the next time" in done.err
    assert len(examined) == 1


def test_lint_compiles_examples_until_all_rules_in_question_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, compiled = default_rules(), []
    sources = lint._sources

    def recorded(rule: Any, everything: Any) -> Any:
        compiled.append(rule.name)
        return sources(rule, everything)

    monkeypatch.setattr(lint, "_sources", recorded)
    told: list[tuple[int, int]] = []
    fired = lint.fired_by_examples(catalog, [catalog["relu"]], lambda done, size: told.append((done, size)))
    assert compiled == ["relu"]
    assert "relu" in fired
    assert told == [(0, len(catalog))]

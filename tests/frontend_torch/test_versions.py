"""Releases of PyTorch: the tested ones are those of docs/compatibility.md, and others are warned of once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sympy
import torch

from patcomp.pytorch import NEWEST, OLDEST, AsksSizeError, asking, no_questions, untested

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", ["2.8.0+cpu", "2.13.0", "2.14.1+cu130", "2.10.0a0+git1234"])
def test_releases_in_the_tested_range_have_no_warning(version: str) -> None:
    assert untested(version) == ""


@pytest.mark.parametrize("version", ["2.7.1", "2.15.0+cpu", "3.0.0.dev20270101"])
def test_other_releases_have_a_warning_of_one_line(version: str) -> None:
    warning = untested(version)
    assert warning.startswith(f"patcomp was tested with PyTorch 2.8 to 2.14, not with {version}")
    assert "\n" not in warning


def test_the_table_has_the_oldest_and_the_newest_release() -> None:
    page = (ROOT / "docs/compatibility.md").read_text()
    tested = {tuple(map(int, found)) for found in re.findall(r"^\| (\d+)\.(\d+)\.\d+", page, re.MULTILINE)}
    assert min(tested) == OLDEST
    assert max(tested) == NEWEST
    assert f"torch>={OLDEST[0]}.{OLDEST[1]}" in (ROOT / "pyproject.toml").read_text()


@pytest.fixture
def size() -> torch.SymInt:
    """An open size that is 4 in the example and at least 2."""
    program = torch.export.export(
        torch.nn.ReLU(), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},)
    )
    return next(iter(program.graph.nodes)).meta["val"].shape[0]  # type: ignore[no-any-return]


def test_questions_about_sizes_are_errors_where_none_may_be_asked(size: torch.SymInt) -> None:
    environment = size.node.shape_env
    before, guards = dict(vars(environment)), list(environment.guards)
    with no_questions(environment), no_questions(environment):
        assert size > 1
        with pytest.raises(AsksSizeError, match="would have to"):
            bool(size > 7)
    assert environment.guards == guards
    assert set(vars(environment)) == set(before)


def test_questions_about_sizes_are_answered_and_recorded(size: torch.SymInt) -> None:
    environment = size.node.shape_env
    before, guards = dict(vars(environment)), list(environment.guards)
    for _ in range(2):  # PyTorch remembers answers
        with asking(environment) as asked:
            assert not size > 7
            assert size + 1 == 5
            assert size > 1
            assert int(size) == 4
        symbol = size.node.expr
        assert asked == [symbol <= 7, sympy.Eq(symbol + 1, 5), sympy.Eq(symbol, 4)]
    assert environment.guards == guards
    assert set(vars(environment)) == set(before)
    assert environment.frozen == before["frozen"]

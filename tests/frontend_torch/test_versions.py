"""Releases of PyTorch: the tested ones are those of docs/compatibility.md, and others are warned of once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from patcomp.pytorch import NEWEST, OLDEST, no_new_guards, untested

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


def test_new_guards_are_errors_on_old_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    program = torch.export.export(
        torch.nn.ReLU(), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},)
    )
    size = next(iter(program.graph.nodes)).meta["val"].shape[0]
    environment = size.node.shape_env
    monkeypatch.delattr(ShapeEnv, "error_on_new_guards", raising=False)
    before, guards = dict(vars(environment)), list(environment.guards)
    with no_new_guards(environment), no_new_guards(environment), pytest.raises(RuntimeError, match="would have to"):
        bool(size > 7)
    assert environment.guards == guards
    assert set(vars(environment)) == set(before)

"""`pytest --changed`: the tests that changed files touch, for a quick check before a commit (`make check`).

A test is touched by a change to its own file, to the file of the rule that it is generated from, to a module that its
file imports, and to a module whose name is part of its file's name. A few conversions of whole models always run.
"""

from __future__ import annotations

import ast
import re
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ALWAYS = re.compile(r"tests/(test_architecture|networks/test_models\.py::.*(bert|llama|mobilenet))")
MOST = 600
"""How many tests run at most, beside those of changed test files: a sample of the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--changed", action="store_true", help="run only the tests that changed files touch")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--changed"):
        return
    kept = selected(items, changed_files())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def changed_files() -> set[str]:
    """What differs from the main branch: commits of another branch and what is not committed; else the last commit."""
    branch = _git("merge-base", "HEAD", "main") or _git("rev-parse", "HEAD")
    for base in (*branch, "HEAD~1"):
        if found := {*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")}:
            return found
    return set()


def selected(items: Sequence[pytest.Item], changed: Iterable[str]) -> set[pytest.Item]:
    """The tests to run."""
    changed = set(changed)
    own = [item for item in items if _path(item) in changed]
    always = [item for item in items if ALWAYS.match(item.nodeid)]
    touched = [item for item in items if item not in {*own, *always} and _is_touched(item, changed)]
    touched.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
    return {*own, *always, *touched[:MOST]}


def _is_touched(item: pytest.Item, changed: set[str]) -> bool:
    call = getattr(item, "callspec", None)
    declared = [str(getattr(value, "source", "")).partition(":")[0] for value in call.params.values()] if call else []
    if any(place and name.endswith(f"/{place}") for place in declared for name in changed):
        return True
    modules = {name.removesuffix(".py").replace("/", ".") for name in changed if name.endswith(".py")}
    stem = item.path.stem.removeprefix("test_")
    words = {stem, *stem.split("_")}
    return bool(modules & imports(item.path)) or any(name.rpartition(".")[2] in words for name in modules)


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports, and the names that it takes of them, as they may be modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _path(item: Any) -> str:
    return item.path.relative_to(ROOT).as_posix()


def _git(*arguments: str) -> list[str]:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")[:-1]

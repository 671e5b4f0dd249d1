"""No function is too long to read, or takes too many arguments: a dataclass of options takes their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = ("patcomp/commands", "patcomp_models", "patcomp_lab")
MOST_LINES, MOST_ARGUMENTS = 80, 12


def functions(text: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int, int]]:
    """The functions and methods in a file's text, with their lines and the number of their arguments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            listed = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
            yield node, (node.end_lineno or 0) - node.lineno + 1, len(listed)


@pytest.mark.parametrize("root", ROOTS)
def test_no_function_is_too_large(root: str) -> None:
    """A docstring counts, and so does `self`."""
    assert (ROOT / root).is_dir()
    large = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines and {arguments} arguments"
        for file in sorted((ROOT / root).rglob("*.py"))
        for node, lines, arguments in functions(file.read_text())
        if lines > MOST_LINES or arguments > MOST_ARGUMENTS
    ]
    assert large == []


def test_what_is_counted() -> None:
    text = "class A:\n    async def f(self, a, /, b, *c, d, **e):\n        def g():\n            pass\n"
    assert [(node.name, *sizes) for node, *sizes in functions(text)] == [("f", 3, 6), ("g", 2, 0)]

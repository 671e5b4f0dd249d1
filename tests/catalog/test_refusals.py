"""The refusals of the catalog name their subject, because a user reads them without the rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import patterns_catalog

_FOLDER = Path(patterns_catalog.__file__).parent
_REFUSING = {"expect", "reject", "Rejected"}
_PRONOUN = re.compile(r"(it|its|they|their)\b", re.IGNORECASE)


def _refusals(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the beginning of each refusal in a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _REFUSING:
            for argument in node.args:
                part = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield node.lineno, part.value


def test_refusals_name_their_subject() -> None:
    found = [(file, *refusal) for file in sorted(_FOLDER.rglob("*.py")) for refusal in _refusals(file)]
    assert len(found) > 200
    wrong = [f"{file.relative_to(_FOLDER)}:{line}: {text}" for file, line, text in found if _PRONOUN.match(text)]
    assert wrong == []


def test_pronouns_are_found(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text('op.expect(x, "the attention has no mask")\nraise Rejected(f"it has {x} masks")')
    assert [bool(_PRONOUN.match(text)) for _, text in _refusals(file)] == [False, True]

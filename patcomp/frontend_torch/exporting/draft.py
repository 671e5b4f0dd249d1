"""The assumptions of `torch.export.draft_export`, as warnings with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from patcomp.errors import Problem, shortened
from patcomp.frontend_torch.exporting.places import is_of_model
from patcomp.pytorch import draft_report

_CHECKED = (
    "program.run checks this, but an asset cannot; torch.cond or torch.where decide in each run: see "
    "docs/control-flow.md"
)


_BRANCH = "DATA_DEPENDENT_ERROR"


def assumptions(program: ExportedProgram) -> Iterator[Problem]:
    """A warning for each condition that a drafted program assumes."""
    failures, files = draft_report(program)
    for failure in failures:
        yield _problem(str(failure.failure_type), failure.data, files)


def branches(program: ExportedProgram) -> list[tuple[str, str]]:
    """The line and the code of each data-dependent branch of a drafted program, which always takes the example's side.

    A Python `assert` decides nothing: where it fails, the model has no results.
    """
    failures, files = draft_report(program)
    decisions = (failure for failure in failures if str(failure.failure_type) == _BRANCH)
    places = (_place(failure.data.get("user_stack") or (), files) for failure in decisions)
    return [(line, code) for line, code in places if not code.startswith("assert ")]


def _problem(kind: str, data: dict[str, Any], files: dict[int, str]) -> Problem:
    source, code = _place(data.get("user_stack") or (), files)
    at = f", `{shortened(code, 100)}`" if code else ""
    if kind == _BRANCH:
        return Problem(
            f"the model decides in Python by a value that only a run knows{at}; the program assumes "
            f"{data['result']}, as for the example",
            source=source,
            advice=_CHECKED,
        )
    if kind == "GUARD_ADDED":
        at = at or f", `{shortened(_condition(str(data['expr']), data['symbol_to_sources']), 100)}`"
        return Problem(
            f"the model decides by a size{at}; the program decides as for the example, and dynamic_shapes allows more "
            "sizes",
            source=source,
            advice="give dynamic_shapes only sizes for which the model decides so; see docs/dynamic-shapes.md",
        )
    op, reason = str(data.get("op", "")), f": {data['reason']}" if data.get("reason") else ""
    is_own = op.startswith(("aten.", "prims."))
    return Problem(
        f"PyTorch cannot know the shapes of the results of {op}{reason}; the program has the shapes of the example",
        source=source,
        advice="" if is_own else "register a shape function with torch.library.register_fake",
    )


def _place(stack: Any, files: dict[int, str]) -> tuple[str, str]:
    """The line of the innermost call of the model, and its code."""
    for frame in reversed(stack):
        file = files.get(frame["filename"], "")
        if is_of_model(file):
            return f"{Path(file).name}:{frame['line']}", str(frame.get("loc") or "")
    return "", ""


def _condition(text: str, sources: dict[str, Any]) -> str:
    """A condition of SymPy with the names of the model: `Eq(s77, 4)` is `x.shape[0] == 4`."""
    for symbol, source in sources.items():
        name = str(source[0] if isinstance(source, list | tuple) and source else source)
        place = re.fullmatch(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]", name)
        text = re.sub(rf"\b{symbol}\b", f"{place[1]}.shape[{place[2]}]" if place else name, text)
    return re.sub(r"^(Eq|Ne)\((.+), (.+)\)$", lambda it: f"{it[2]} {'==' if it[1] == 'Eq' else '!='} {it[3]}", text)

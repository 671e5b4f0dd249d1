"""The assumptions of `torch.export.draft_export`, as warnings with their lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from patcomp.errors import Problem
from patcomp.frontend_torch.exporting.places import is_of_model
from patcomp.pytorch import draft_report

_CHECKED = "the program is for inputs like the example; program.run checks the condition, but an asset cannot"


def assumptions(program: ExportedProgram) -> Iterator[Problem]:
    """A warning for each condition that a drafted program assumes."""
    failures, files = draft_report(program)
    for failure in failures:
        yield _problem(str(failure.failure_type), failure.data, files)


def _problem(kind: str, data: dict[str, Any], files: dict[int, str]) -> Problem:
    source, code = _place(data.get("user_stack") or (), files)
    at = f" in `{code}`" if code else ""
    if kind == "DATA_DEPENDENT_ERROR":
        return Problem(
            f"torch.export cannot know the value of {data['expr']}{at}, and assumes {data['result']}, its value for "
            "the example",
            source=source,
            advice=_CHECKED,
        )
    if kind == "GUARD_ADDED":
        return Problem(
            f"the program is right only where {data['expr']}{at}, for the sizes "
            f"{_sizes(data['symbol_to_sources'])}; dynamic_shapes allows more",
            source=source,
            advice="give dynamic_shapes a range that implies this condition",
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


def _sizes(sources: dict[str, Any]) -> str:
    return ", ".join(f"{symbol} ({_first(source)})" for symbol, source in sources.items())


def _first(source: Any) -> str:
    return str(source[0] if isinstance(source, list | tuple) and source else source)

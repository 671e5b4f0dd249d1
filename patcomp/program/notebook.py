"""The display of a program in a notebook: its entry points, stages and composites as small tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patcomp.program.data import ProgramData


def html_summary(program: ProgramData) -> str:
    """A short piece of HTML, without scripts."""
    reports = program.reports
    counts: list[tuple[Any, ...]] = [("import", reports[0].ops_before, "")] if reports else []
    counts += [(each.name, each.ops_after, each.statistics.rewrites) for each in reports]
    entries = [(f"@{name}", program.signature(name)) for name in program.entrypoints]
    parts = [
        f"<b>AIProgram</b>, {program.module.op_count()} ops; <code>program.html('report.html')</code> shows all of it",
        _table(("entry point", "signature"), entries),
        _table(("stage", "ops", "rewrites"), counts) if counts else "",
        _table(("composite", "calls"), program.composites.items()) if program.composites else "",
    ]
    return f"<div>{''.join(parts)}</div>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th style='text-align:left'>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

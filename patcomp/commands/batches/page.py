"""The HTML page of a batch: its results as a table, the best conversions as a plot, and what each one reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from patcomp.commands.batches.jobs import BatchResult
from patcomp.commands.pages import PlottedPoint, page_of, plot_of, shown_text
from patcomp.errors import printable


def page(results: Sequence[BatchResult], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page as the text of an HTML file, which needs no other file.

    Args:
        results: of the batch.
        rows: the same as plain values.
    """
    good = sum(map(bool, results))
    title = f"{good} of {len(results)} models are converted"
    parts = [*_table(rows), *_plots(rows), "<h2>What each conversion reported</h2>"]
    for result in results:
        name, log = shown_text(result.name), "\n".join(map(printable, result.log.splitlines()))
        parts.append(f"<details id='{name}'><summary>{name}: {shown_text(result.verdict)}</summary>")
        parts.append(f"<pre>{escape(log)}</pre></details>")
    return page_of(title, parts)


_COLOURS = {"converted": "good", "kept": "good", "not finished": "open"}
OUT_OF_TABLES = frozenset(("model", "best", "written"))
"""Columns that only files have."""


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    headings = [name for name in rows[0] if name not in OUT_OF_TABLES]
    lines = ["<div class='wide'><table><tr>", *(f"<th>{shown_text(name)}</th>" for name in headings), "</tr>"]
    for row in rows:
        lines.append("<tr class='best'>" if row["best"] else "<tr>")
        for name in headings:
            text, kind = shown_text(cell_text(name, row[name])), ""
            if name == "name":
                text = f"<a href='#{text}'>{text}</a>" + " ★" * row["best"]
            elif name == "result":
                kind = _COLOURS.get(row[name], "bad")
            elif isinstance(row[name], int | float):
                kind = "number"
            lines.append(f"<td class='{kind}'>{text}</td>")
        lines.append("</tr>")
    note = "<p>★: no other conversion of the model for the target is at least as good in bytes, loss and problems.</p>"
    return [*lines, "</table></div>", note if any(row["best"] for row in rows) else ""]


def cell_text(name: str, value: Any) -> str:
    """A value of a row for people."""
    if value is None:
        return ""
    if name == "bytes":
        return f"{value:,}"
    if name == "loss":
        return f"{value:.2g}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _plots(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A plot for each model with several conversions that were measured: bytes, loss, and the problems of the audit as
    numbers."""
    measured = [row for row in rows if row["bytes"] and row["loss"] is not None and row["written"]]
    parts = []
    for model in dict.fromkeys(row["model"] for row in measured):
        of_model = [row for row in measured if row["model"] == model]
        points = [PlottedPoint(_label(row), row["bytes"], row["loss"], bool(row["best"])) for row in of_model]
        if len(points) > 1:
            parts.append(plot_of(model, points, "bytes; in brackets: problems for the target", "loss"))
    return ["<h2>Bytes against loss</h2>", *parts] if parts else []


def _label(row: Mapping[str, Any]) -> str:
    problems = "" if row["problems"] is None else f" ({row['problems']})"
    return str(row["name"]).removeprefix(f"{row['model']}-") + problems

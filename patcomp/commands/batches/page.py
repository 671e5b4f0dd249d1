"""The HTML page of a batch: its results as a table, the best conversions as a plot, and what each one reported."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from patcomp.commands.batches.jobs import BatchResult
from patcomp.errors import printable

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #8884; white-space: nowrap; }
td:last-child { white-space: normal; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.best td:first-child { font-weight: 600; }
.good { color: #1a7f37; } .bad { color: #cf222e; } .open { color: #9a6700; }
pre { overflow-x: auto; background: #8881; padding: 1rem; }
svg { max-width: 100%; height: auto; background: #fff; }
"""


def page(results: Sequence[BatchResult], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page as the text of an HTML file, which needs no other file.

    Args:
        results: of the batch.
        rows: the same as plain values.
    """
    good = sum(map(bool, results))
    title = f"{good} of {len(results)} models are converted"
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>",
        *_table(rows),
        *_plots(rows),
        "<h2>What each conversion reported</h2>",
    ]
    for result in results:
        name, log = _text(result.name), "\n".join(map(printable, result.log.splitlines()))
        parts.append(f"<details id='{name}'><summary>{name}: {_text(result.verdict)}</summary>")
        parts.append(f"<pre>{escape(log)}</pre></details>")
    return "\n".join(parts) + "</html>\n"


_COLOURS = {"converted": "good", "kept": "good", "not finished": "open"}
OUT_OF_TABLES = frozenset(("model", "best", "written"))
"""Columns that only files have."""


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    headings = [name for name in rows[0] if name not in OUT_OF_TABLES]
    lines = ["<div class='wide'><table><tr>", *(f"<th>{_text(name)}</th>" for name in headings), "</tr>"]
    for row in rows:
        lines.append("<tr class='best'>" if row["best"] else "<tr>")
        for name in headings:
            text, kind = _text(cell_text(name, row[name])), ""
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
    """A plot for each model with several conversions that were measured, if matplotlib is installed: bytes, loss, and
    the problems of the audit as numbers."""
    measured = [row for row in rows if row["bytes"] and row["loss"] is not None and row["written"]]
    models = [model for model in dict.fromkeys(row["model"] for row in measured)
              if sum(row["model"] == model for row in measured) > 1]  # fmt: skip
    if not models:
        return []
    if importlib.util.find_spec("matplotlib") is None:
        return ["<p>With matplotlib, this page has a plot of bytes, loss and problems for each model.</p>"]
    import matplotlib
    from matplotlib.figure import Figure

    parts = ["<h2>Bytes against loss</h2>"]
    with matplotlib.rc_context({"svg.hashsalt": "patcomp", "svg.fonttype": "path", "font.size": 9}):
        for model in models:
            figure = Figure(figsize=(7, 3.6), layout="constrained")
            axes = figure.subplots()
            of_model = [row for row in measured if row["model"] == model]
            for row in of_model:
                style: dict[str, Any] = {"marker": "o" if row["best"] else "x", "color": "C0" if row["best"] else "C7"}
                axes.plot(row["bytes"], row["loss"], linestyle="none", **style)
                problems = "" if row["problems"] is None else f" ({row['problems']})"
                label = row["name"].removeprefix(f"{model}-") + problems
                axes.annotate(label, (row["bytes"], row["loss"]), (4, 4), textcoords="offset points", parse_math=False)
            if all(row["loss"] > 0 for row in of_model):
                axes.set_yscale("log")
            axes.margins(0.2)
            axes.set_title(model, parse_math=False)
            axes.set_xlabel("bytes; in brackets: problems for the target")
            axes.set_ylabel("loss")
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            parts.append(text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2])
    return parts


def _text(value: object) -> str:
    return escape(printable(str(value)), quote=True)

"""What HTML pages of commands share: their style, and a plot of bytes against loss."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

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


@dataclass(frozen=True)
class PlottedPoint:
    """A point of a plot: one way to convert a model."""

    label: str
    bytes: int
    loss: float
    is_best: bool = True
    """Whether no other one is at least as good in all that counts."""


def is_best(own: Sequence[float], all_: Iterable[Sequence[float]]) -> bool:
    """Whether no other one of several numbers is at most as large in all of them."""
    return not any(its != own and all(a <= b for a, b in zip(its, own, strict=True)) for its in all_)


def page_of(title: str, parts: Sequence[str]) -> str:
    """An HTML file that needs no other file, from its title and the parts of its body."""
    head = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{shown_text(title)}</title><style>{_STYLE}</style><h1>{shown_text(title)}</h1>",
    ]
    return "\n".join([*head, *parts]) + "</html>\n"


def plot_of(title: str, points: Sequence[PlottedPoint], across: str, up: str) -> str:
    """A plot of bytes against loss as SVG; a sentence if matplotlib is not installed.

    Args:
        title, points: of the plot.
        across, up: what stands along the axes.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"<p>With matplotlib, this page has a plot of {shown_text(across)} and {shown_text(up)} here.</p>"
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "patcomp", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.subplots()
        for each in points:
            marker, colour = ("o", "C0") if each.is_best else ("x", "C7")
            axes.plot(each.bytes, each.loss, linestyle="none", marker=marker, color=colour)
            axes.annotate(each.label, (each.bytes, each.loss), (4, 4), textcoords="offset points", parse_math=False)
        if all(each.loss > 0 for each in points):
            axes.set_yscale("log")
        axes.margins(0.2)
        axes.set_title(title, parse_math=False)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        return "<svg" + text.getvalue().partition("<svg")[2]


def table_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts as HTML; all but the first column are numbers."""
    lines = ["<div class='wide'><table><tr>", *(f"<th>{shown_text(name)}</th>" for name in headings), "</tr>"]
    for first, *others in rows:
        lines += [
            f"<tr><td>{shown_text(first)}</td>",
            *(f"<td class='number'>{shown_text(each)}</td>" for each in others),
        ]
        lines.append("</tr>")
    return "".join([*lines, "</table></div>"])


def shown_text(value: object) -> str:
    """A value as text of HTML."""
    return escape(printable(str(value)), quote=True)

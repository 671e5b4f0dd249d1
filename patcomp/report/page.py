"""The page: the data of a report in one HTML file, with its style, scripts and licences."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from patcomp.ir.module import IRModule
from patcomp.patterns import RuleSet
from patcomp.report.conversion import Closest, Replay, conversion_data
from patcomp.report.differences import difference_data, short_names

_SCRIPTS = (
    "tree", "modules", "lanes", "layout", "boxes", "moving", "drawing", "minimap", "panes", "text", "details", "rules",
    "treemap", "lists", "differences", "search", "start",
)  # fmt: skip
"""The scripts in the order in which the page runs them; they share one scope."""


def html_page(
    program: Any,
    replay: Replay | None,
    rules: RuleSet,
    *,
    closest: Closest | None = None,
    verification: Any = None,
    times: bool = False,
    places: bool = True,
    target: Any = None,
    watched: Mapping[str, str] | None = None,
    date: str = "",
    command: str = "",
) -> str:
    """The report of a program as the text of an HTML file.

    Args:
        program: the `AIProgram`.
        replay: repeats its conversion; None for a program from an asset or a text, which is the only stage then.
        rules: the rules of the conversion.
        closest: how close the rule of a name came to a match.
        verification: a `Verification` of the program, which the report then shows.
        times: whether to show the seconds of stages and rules; the file then differs with each conversion.
        places: whether to show modules, FX nodes and source lines.
        target: the target of the conversion, if it has one.
        watched: rules that someone is writing, the first of which the page shows first, and for each what it changes
            in the program.
        date, command: when and by which command the report was written; texts that the page shows.
    """
    data = conversion_data(
        program, replay, rules, closest, verification, times, places, target=target, watched=watched or {}
    )
    model = program.history.model if places and program.history is not None else ""
    return _page(model or ", ".join(program.entrypoints), [data["target"], date, command if places else ""], data)


def difference_page(
    names: tuple[str, str],
    modules: tuple[IRModule, IRModule],
    values: tuple[Mapping[str, object], Mapping[str, object]],
    *,
    date: str = "",
    command: str = "",
) -> str:
    """Two programs side by side as the text of an HTML file, with the ops in which they differ.

    Args:
        names: what the programs are called; of paths, the page shows the ends that differ.
        modules: the programs, at any stage.
        values: as `patcomp.ir.difference.difference` takes them.
        date, command: as `html_page` takes them.
    """
    data = difference_data(short_names(*names), modules, values)
    return _page(" and ".join(data["difference"]["names"]), [date, command], data)


def _page(title: str, facts: Sequence[str], data: dict[str, Any]) -> str:
    # inside a script element, `<` might end the element
    embedded = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {
        "TITLE": escape(title),
        "FACTS": "".join(f'<span title="{escape(fact)}">{escape(fact)}</span>' for fact in facts if fact),
        "STYLE": _file("report.css"),
        "LICENSE": _file("dagre.LICENSE.txt").replace("--", "- -"),
        "DAGRE": _file("dagre.min.js").rpartition("//# sourceMappingURL")[0],
        "DATA": embedded,
        "SCRIPTS": "\n".join(_file(f"{name}.js") for name in _SCRIPTS),
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], _file("report.html"))


def _file(name: str) -> str:
    return files("patcomp.report").joinpath(name).read_text(encoding="utf-8")

"""Gather what the report shows, and write it into one page with its style, scripts and licences."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.resources import files
from inspect import cleandoc
from typing import Any

from patcomp.errors import Problem
from patcomp.ir.module import IRModule
from patcomp.ir.weights import resource_attributes
from patcomp.patterns import Rule, Stage
from patcomp.report.snapshot import Tables, snapshot
from patcomp.rewrites import Compilation

Replay = Callable[[Callable[[str, IRModule], object]], Compilation]
"""Repeats a conversion, and calls a function with each stage's name and the module after it."""


def html_page(
    program: Any,
    replay: Replay | None,
    rules: Iterable[Rule],
    *,
    verification: Any = None,
    times: bool = False,
    places: bool = True,
) -> str:
    """The report of a program as the text of an HTML file.

    Args:
        program: the `AIProgram`.
        replay: repeats its conversion; None for a program from an asset or a text, which is the only stage then.
        rules: the rules of the conversion.
        verification: a `Verification` of the program, which the report then shows.
        times: whether to show the seconds of stages and rules; the file then differs with each conversion.
        places: whether to show modules, FX nodes and source lines.
    """
    data = _data(program, replay, list(rules), verification, times, places)
    # inside a script element, `<` might end the element
    embedded = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {
        "TITLE": f"patcomp: {', '.join(program.entrypoints)}".replace("&", "&amp;").replace("<", "&lt;"),
        "STYLE": _file("report.css"),
        "LICENSE": _file("dagre.LICENSE.txt").replace("--", "- -"),
        "DAGRE": _file("dagre.min.js").rpartition("//# sourceMappingURL")[0],
        "TREE": _file("tree.js"),
        "LAYOUT": _file("layout.js"),
        "DRAWING": _file("drawing.js"),
        "PANES": _file("panes.js"),
        "PANELS": _file("panels.js"),
        "DATA": embedded,
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], _file("report.html"))


def _file(name: str) -> str:
    return files("patcomp.report").joinpath(name).read_text(encoding="utf-8")


def _data(
    program: Any, replay: Replay | None, rules: list[Rule], verification: Any, times: bool, places: bool
) -> dict[str, Any]:
    tables = Tables(places)
    stages: list[dict[str, Any]] = []

    def keep(name: str, module: IRModule) -> None:
        stages.append(
            {"name": name, "count": module.op_count(), "rules": [], "graphs": snapshot(module, tables), "seconds": None}
        )

    compilation = None if replay is None else replay(keep)
    reports = [] if compilation is None else compilation.reports
    measured = {report.name: report for report in program.reports}
    later = [report for report in program.reports if report.name not in {each.name for each in reports}]
    if compilation is None:
        keep("program", program.module)
    elif program.module.text() != compilation.module.text():  # what the user did with it after the conversion
        keep(later[-1].name if later else "specialized", program.module)
    for stage, report in zip(stages[1:], [*reports, *later[-1:]], strict=False):
        stage["rules"] = [
            [name, work.tries, work.rewrites, measured[report.name].statistics.rules[name].seconds if times else None]
            for name, work in report.statistics.rules.items()
            if work.rewrites
        ]
        stage["seconds"] = measured[report.name].seconds if times else None
    report, compression = program.report(), program.compression
    exhausted = [(name, stage) for stage in reports for name in stage.statistics.exhausted]
    return {
        "entrypoints": [
            {"name": name, "signature": str(program.signature(name))} for name in program.entrypoints
        ],
        "stages": stages,
        "rules": {
            rule.name: {
                "stage": str(rule.stage), "doc": cleandoc(rule.doc), "source": rule.source
            }
            for rule in rules
        },
        "weights": _weights(program.module),
        "compression": None if compression is None else compression.as_dict(),
        "composites": [
            [call.composite, call.rule, call.place, call.origins[0].module_path if call.origins else ""]
            for call in report.calls
        ],
        "notes": [
            *(["warning", _note(each, places)] for each in report.diagnostics),
            *(["overlapping rules", each] for each in report.overlaps),
            *(["left to PyTorch's run_decompositions", _note(each, places)] for each in report.left_to_pytorch),
            *(["search stopped", f"{name} in {stage.name}: too many operand orders"] for name, stage in exhausted),
            *(
                ["int64 inputs", f"@{entry}: all results fit 32 bits while {name} is within ±{limit}"]
                for entry, limits in report.limits.items()
                for name, limit in limits.items()
            ),
        ],
        "nearMisses": [] if compilation is None else _near_misses(program, rules, compilation),
        "verification": _verification(verification, places),
        **tables.data(),
    }  # fmt: skip


def _note(problem: Problem, places: bool) -> str:
    return str(problem if places else replace(problem, node="", module_path="", source=""))


def _verification(verification: Any, places: bool) -> dict[str, Any] | None:
    """A verification as plain data; the numbers of modules are places, too."""
    if verification is None:
        return None
    shown = verification if places else replace(verification, modules=(), departure=None)
    plain: dict[str, Any] = shown.to_dict()
    return plain


def _weights(module: IRModule) -> list[list[Any]]:
    """Key, type, bytes and number of uses of each weight, the largest first."""
    uses = Counter(attribute.resource_handle.data for attribute in resource_attributes(module))
    found = [
        [key, str(module.blobs[key].type), len(module.blobs[key].data), uses[key]]
        for key in uses
        if key in module.blobs
    ]
    return sorted(found, key=lambda weight: (-weight[2], weight[0]))


_MATCHED = re.compile(r"matched (\d+) of (\d+) ops")


def _near_misses(program: Any, rules: list[Rule], compilation: Compilation) -> list[list[str]]:
    """Composites that came close: the recover rules that fired nowhere, but matched half of their ops or more."""
    fired = {name for report in compilation.reports for name in report.statistics.fired}
    found = []
    for rule in rules:
        if rule.stage is Stage.RECOVER and rule.is_declarative and rule.name not in fired and rule.size > 1:
            answer = program.why_not(rule.name)
            match = _MATCHED.search(answer)
            if match and int(match[1]) > 1 and 2 * int(match[1]) >= int(match[2]):
                found.append([rule.name, answer])
    return found

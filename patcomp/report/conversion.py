"""What the report of a conversion shows, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import cleandoc
from typing import Any

from patcomp.errors import Problem
from patcomp.ir.module import IRModule
from patcomp.patterns import RuleSet, Stage
from patcomp.questions.audit import audit
from patcomp.questions.ops import Attempt
from patcomp.report.costs import OpNumbers, costs_of
from patcomp.report.reading import packed_text
from patcomp.report.snapshot import Tables, snapshot
from patcomp.rewrites import Compilation
from patcomp.targets import TARGETS, Target

Replay = Callable[[Callable[[str, IRModule], object]], Compilation]
"""Repeats a conversion, and calls a function with each stage's name and the module after it."""

Closest = Callable[[str], Attempt]
"""How close the rule of a name came to a match."""


def conversion_data(
    program: Any,
    replay: Replay | None,
    rules: RuleSet,
    closest: Closest | None,
    verification: Any,
    times: bool,
    places: bool,
    *,
    target: Target | None,
    watched: Mapping[str, str],
) -> dict[str, Any]:
    """The data of `html_page`, whose arguments these are."""
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
    fired = {name for report in reports for name in report.statistics.fired}
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
        "costs": [costs_of(program.module)],
        "audits": _audits(program.module, rules, target, places),
        "target": "" if target is None else target.name,
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
        "nearMisses": [] if closest is None else _near_misses(rules, fired, closest, watched),
        "watched": [[name, changes, name in fired] for name, changes in watched.items()],
        "verification": _verification(verification, places),
        "difference": None,
        "program": packed_text(program.module),
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


def _audits(module: IRModule, rules: RuleSet, target: Target | None, places: bool) -> list[dict[str, Any]]:
    """What does not suit each target, with the ops, by the number of their graph."""
    numbering = OpNumbers(module)
    known = {**TARGETS, **({} if target is None else {target.name: target})}
    found = []
    for each in known.values():
        result = audit(module, each, rules)
        findings = []
        for finding in result.findings:
            ops: dict[int, list[int]] = {}
            for graph, number in filter(None, map(numbering.of, finding.ops)):
                ops.setdefault(graph, []).append(number)
            shown = finding if places else replace(finding, places=())
            findings.append({**shown.to_dict(), "ops": list(ops.items())})
        times = list(map(str, result.estimates))
        found.append({"target": each.name, "clean": result.clean, "findings": findings, "estimates": times})
    return found


def _near_misses(rules: RuleSet, fired: set[str], closest: Closest, watched: Mapping[str, str]) -> list[list[str]]:
    """The recover rules that fired nowhere but came close, and all watched rules that did not fire."""
    found = []
    for rule in rules:
        is_watched = rule.name in watched
        is_composite = rule.stage is Stage.RECOVER and rule.is_declarative and rule.size > 1
        if rule.name in fired or not (is_watched or is_composite):
            continue
        attempt = closest(rule.name)
        if attempt.came_close or is_watched:
            found.append([rule.name, attempt.text])
    return found

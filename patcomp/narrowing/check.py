"""The messages about narrowing: one warning for integers and one for floats, or an error with all places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from patcomp.errors import Problem, UnsupportedError
from patcomp.ir.custom import CustomOp
from patcomp.ir.extents import argument_notes
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.xdsl import SSAValue, StringAttr
from patcomp.narrowing.analysis import Change, NarrowingFacts, Ranges
from patcomp.narrowing.ranges import PythonNumber
from patcomp.narrowing.widths import Widths

SHOWN = 3
"""The number of places that a warning names."""

_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Narrowed:
    """The warnings about a module whose 64-bit numbers become 32-bit, and the limits of its inputs."""

    diagnostics: tuple[Problem, ...] = ()
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The largest numbers of the int64 inputs that may not use all 32 bits, by graph and run-time name."""


def check_narrowing(module: IRModule, widths: Widths) -> Narrowed:
    """Find the 64-bit numbers of a module that may change in 32 bits.

    Raises:
        UnsupportedError: there are such numbers, and the user chose errors; the message lists all of them.
    """
    if widths.int64 == widths.float64 == "keep":
        return Narrowed()
    facts = NarrowingFacts(module, widths)
    inputs = facts.free_inputs()
    analysis = Ranges(facts, inputs)
    found: dict[bool, dict[tuple[str, str, str], Problem]] = {False: {}, True: {}}
    for change in analysis.changes.values():
        problem = _problem(change)  # a decomposed node may have several
        found[change.is_float].setdefault((problem.node, problem.module_path, problem.source), problem)
    errors = {False: widths.int64 == "error", True: widths.float64 == "error"}
    if refused := [
        problem for is_float, problems in found.items() if errors[is_float] for problem in problems.values()
    ]:
        raise UnsupportedError("64-bit numbers may change when they are computed in 32 bits:", refused)
    return Narrowed(
        tuple(_summary(list(problems.values())) for problems in found.values() if problems),
        _limits(facts, analysis, inputs),
    )


def _problem(change: Change) -> Problem:
    name = change.op.target.data if isinstance(change.op, CustomOp) else None
    if change.is_float:
        message = "this float64 result may differ in float32 by more than its rounding"
        return problem_at(change.op, message, "convert with float64='keep' to compute in 64 bits", name=name)
    largest = max(change.range.low, change.range.high, key=abs)
    message = f"this int64 result is computed in 32 bits and may not fit: it may be {_shown(largest)}"
    return problem_at(change.op, message, "convert with int64='keep' to compute in 64 bits", name=name)


def _shown(value: PythonNumber) -> str:
    if not math.isfinite(value) or abs(value) >= 2**63 - 1:
        return "any number"
    return f"about {value:.1e}"


def _summary(problems: list[Problem]) -> Problem:
    """One problem for several places: the first, and where the others are."""
    first, *others = problems
    if not others:
        return first
    listed = "\n".join(f"  {each.place}" for each in others[: SHOWN - 1])
    more = f"\n  and {len(others) - SHOWN + 1} more" if len(others) >= SHOWN else ""
    places = "places" if len(others) > 1 else "place"
    return replace(first, advice=f"{len(others)} more such {places}:\n{listed}{more}\n{first.advice}")


# ---- how large inputs may be ----------------------------------------------------------------------


def _limits(facts: NarrowingFacts, analysis: Ranges, inputs: Mapping[SSAValue, int]) -> dict[str, dict[str, int]]:
    """The largest numbers of the free inputs for which nothing else may overflow."""

    def holds(limits: Mapping[SSAValue, int]) -> bool:
        return Ranges(facts, limits).changes.keys() == analysis.changes.keys()

    if not inputs or holds(_at_least(_LARGEST + 1, inputs, inputs)):
        return {}
    low, high = 1, _LARGEST + 1  # it holds for low, not for high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(_at_least(middle, inputs, inputs)) else (low, middle)
    common = _at_least(low, inputs, inputs)
    limited = {each for each in inputs if not holds({**common, **_at_least(_LARGEST + 1, inputs, [each])})}
    found: dict[str, dict[str, int]] = {}
    for graph in facts.module.graphs:
        for argument, notes in zip(graph.regions[0].block.args, argument_notes(graph), strict=True):
            name = notes.get("coreai.name")
            if argument in limited and isinstance(name, StringAttr):
                found.setdefault(graph_name(graph), {})[name.data] = common[argument]
    return found


def _at_least(limit: int, inputs: Mapping[SSAValue, int], chosen: Iterable[Any]) -> dict[SSAValue, int]:
    return {each: max(limit, inputs[each]) for each in chosen}

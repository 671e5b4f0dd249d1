"""The findings of an audit, with what is publicly known of each, and what divides a program most."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from patcomp.devices import UNITS, Fact, facts_of_finding, known_facts, occurrences
from patcomp.ir.locations import describe, origins
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation
from patcomp.questions.costs import (
    CHIPS,
    Estimate,
    crossings,
    crossings_alone,
    estimates,
    large_working_sets,
    of_crossings,
)
from patcomp.targets import Target

MOST_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """One kind of construct that does not suit a target."""

    what: str
    """`f32 values`, `rank over 5`, `coreai.sort`."""
    count: int
    """How many values or ops there are."""
    places: tuple[str, ...]
    """The first of them: FX node, module path and source line."""
    mended_by: tuple[str, ...] = ()
    """The rules and steps of targets that rewrite such things. They refused these, or were left out."""
    is_advice: bool = False
    """Whether the target takes it, but at a cost."""
    ops: tuple[Operation, ...] = field(default=(), repr=False, compare=False)
    """The ops, once each; a graph stands for one of its inputs or outputs."""
    facts: tuple[Fact, ...] = field(default=(), repr=False, compare=False)
    """What is publicly known of it, with the sources."""
    crossings: int = 0
    """How often it alone cuts the Neural Engine's work."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The addresses of the public reports."""
        return tuple(dict.fromkeys(address for fact in self.facts for address in fact.source))

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data, without its ops."""
        return {
            "what": self.what,
            "count": self.count,
            "places": self.places,
            "mended_by": self.mended_by,
            "is_advice": self.is_advice,
            "sources": self.sources,
            "crossings": self.crossings,
        }

    def __str__(self) -> str:
        rules = f"; see {', '.join(self.mended_by)}" if self.mended_by else ""
        cuts = ""
        if self.crossings:
            times = "once" if self.crossings == 1 else f"{self.crossings} times"
            cuts = f"; cuts the program {times}, about {of_crossings('', self.crossings).time}"
        return f"{self.what}: {self.count}{rules}{cuts}" + "".join(
            f"\n    {line}" for line in (*self.places, *self.sources)
        )


@dataclass(frozen=True)
class Audit:
    """The constructs of a program that do not suit a target. `str` shows them as a list."""

    target: str
    findings: tuple[Finding, ...]
    """Problems first, and of these the ones that divide the program most."""
    estimates: tuple[Estimate, ...] = ()
    """What the program costs beyond its arithmetic, by public measurements."""

    @property
    def clean(self) -> bool:
        """Whether there is nothing but advice."""
        return all(finding.is_advice for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain data."""
        return {
            "target": self.target,
            "clean": self.clean,
            "findings": [each.to_dict() for each in self.findings],
            "estimates": [each.to_dict() for each in self.estimates],
        }

    def __str__(self) -> str:
        problems = [each for each in self.findings if not each.is_advice]
        taken = "takes the program" if self.findings else "nothing to mend"
        head = f"{self.target}: {f'{len(problems)} kinds of problems' if problems else taken}"
        parts = [f"  {'advice: ' * each.is_advice}{each}" for each in self.findings]
        times = [f"  estimate: {each}" for each in self.estimates]
        return "\n".join([head, *parts, *times])


def of_devices(module: IRModule, target: Target) -> list[Finding]:
    """The findings of public facts about the target's unit that its constraints do not have: those of a construct that
    is not merely left to another unit are problems, unless a conversion is quiet about them."""
    found = [
        Finding(
            each.fact.says,
            len(each.ops),
            places_of(each.ops),
            each.fact.rules,
            not each.fact.warned,
            each.ops,
            (each.fact,),
        )
        for each in occurrences(module, _units(target), all_severities=True)
        if target.wants.left_out.isdisjoint(each.fact.ops) or each.fact.severity in ("wrong", "aborts")
    ]
    if target.name == "neural_engine" and (large := large_working_sets(module)):
        what = f"a working set over {CHIPS['M5'][1]} MB, the memory on the chip"
        found.append(Finding(what, len(large), places_of(large), (), True, tuple(large)))
    return found


def _units(target: Target) -> tuple[str, ...]:
    """The unit of a target; none for a target of other devices."""
    return (target.name,) if target.name in UNITS else ()


def with_facts(
    findings: Sequence[Finding], module: IRModule, target: Target, elsewhere: Collection[Operation]
) -> Audit:
    """The audit of findings, with the facts about each and the estimates; what divides the program most comes first.

    Args:
        findings: the findings, in any order.
        module: the program.
        target: the target.
        elsewhere: the ops that the target does not compute.
    """
    units = _units(target)
    findings = _about_stored_forms(findings)
    shown = [
        replace(each, facts=(*each.facts, *facts_of_finding(each.what, units), *_about_op(each.what, units)))
        for each in findings
    ]
    if "neural_engine" not in units:
        return Audit(target.name, tuple(sorted(shown, key=lambda each: each.is_advice)))
    away = set(elsewhere)
    cuts = crossings_alone(module, {each.what: away.intersection(each.ops) for each in shown if not each.is_advice})
    shown = [each if each.is_advice else replace(each, crossings=cuts[each.what]) for each in shown]
    shown.sort(key=lambda each: (each.is_advice, -each.crossings))
    return Audit(target.name, tuple(shown), estimates(module, crossings(module, away)))


def _about_stored_forms(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, in which a stored form that the target does not take is one finding, with the facts about it."""
    refused = [each for each in findings if each.what.startswith("weights stored as ")]
    ops = {op for each in refused for op in each.ops}
    about = [each for each in findings if each.facts and not each.is_advice and ops.issuperset(each.ops)]
    known = {
        each.what: [fact for other in about if not set(each.ops).isdisjoint(other.ops) for fact in other.facts]
        for each in refused
    }
    return [replace(each, facts=(*each.facts, *known.get(each.what, ()))) for each in findings if each not in about]


def _about_op(what: str, units: Sequence[str]) -> tuple[Fact, ...]:
    """The facts about an op that the target leaves to other units."""
    return tuple(
        fact
        for fact in known_facts()
        if what in fact.ops
        and fact.audited
        and fact.severity in ("falls back", "slow")
        and not set(units).isdisjoint(fact.units)
    )


def places_of(ops: Collection[Operation]) -> tuple[str, ...]:
    """The first places in the model that ops come from."""
    known = (describe(op) for op in ops if origins(op.location))
    return tuple(dict.fromkeys(known))[:MOST_SHOWN]

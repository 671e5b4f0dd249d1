"""The facts of the folder `known`, by the ops that they are about, and those that a program has."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from patcomp.devices.fact import UNITS, Fact, Unit
from patcomp.errors import Problem
from patcomp.families import modules_in
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule, callee
from patcomp.ir.xdsl import Operation, ops_inside
from patcomp.targets import Target


@cache
def known_facts() -> tuple[Fact, ...]:
    """All facts, in the order of the tables."""
    return tuple(fact for module in modules_in("patcomp.devices.known") for fact in module.FACTS)


@dataclass(frozen=True)
class Occurrence:
    """A fact, and the ops of a program that it is about."""

    fact: Fact
    ops: tuple[Operation, ...]


def occurrences(module: IRModule, units: Iterable[str], *, all_severities: bool) -> list[Occurrence]:
    """The facts that are about ops of a program, in the order of the tables.

    Args:
        module: the program, in the `coreai` dialect.
        units: the compute units that the program may run on.
        all_severities: whether to look for all facts, as an audit does, or for those of which a conversion warns.
    """
    index, composites = _index(frozenset(units), all_severities), module.composite_names()
    found: dict[Fact, list[Operation]] = {}
    for op in ops_inside(module.op):
        name = op.name
        if name == "coreai.invoke":
            name = f"composite {composites.get(callee(op), '')}"
        for fact in index.get(name, ()):
            if fact.fits(op, module):
                found.setdefault(fact, []).append(op)
    return [Occurrence(fact, tuple(found[fact])) for fact in known_facts() if fact in found]


@cache
def _index(units: frozenset[str], all_severities: bool) -> dict[str, tuple[Fact, ...]]:
    """The facts that are looked for, by op."""
    found: dict[str, tuple[Fact, ...]] = {}
    for fact in known_facts():
        if units.intersection(fact.units) and (fact.audited if all_severities else fact.warned):
            for op in fact.ops:
                found[op] = (*found.get(op, ()), fact)
    return found


def units_of(target: Target | None) -> tuple[Unit, ...]:
    """The compute units that a program for a target runs on: that of the target's name, or any."""
    return tuple(unit for unit in UNITS if target is not None and unit == target.name) or UNITS


def warnings_about(module: IRModule, units: Iterable[str], without: Container[str] = ()) -> list[Problem]:
    """What the user of a converted program is told: one warning a fact, with the number of places and the address.

    Args:
        module, units: the program, and the compute units that it may run on.
        without: the names of facts that are left out.
    """
    found = occurrences(module, units, all_severities=False)
    return [_warning(each) for each in found if each.fact.name not in without]


def _warning(found: Occurrence) -> Problem:
    fact, count = found.fact, len(found.ops)
    where = f" ({count} places)" if count > 1 else ""
    text = f"{_units(fact.units)}: {fact.says}{where}; seen on {fact.seen}; {', '.join(fact.source)}"
    return problem_at(found.ops[0], text, _advice(fact))


def _units(units: Sequence[str]) -> str:
    return " and ".join(unit.replace("_", " ") for unit in units)


def _advice(fact: Fact) -> str:
    """What to do, and which rules of targets avoid the construct."""
    targets = " or ".join(f"target={unit!r}" for unit in fact.units)
    listed = ", ".join(map(repr, fact.rules))
    rule = f"{targets} rewrites it where it can ({listed})" if fact.rules else ""
    return "; ".join(filter(None, [rule, fact.advice]))


def facts_of_finding(what: str, units: Iterable[str]) -> tuple[Fact, ...]:
    """The facts that explain a finding of an audit, by its text."""
    wanted = set(units)
    return tuple(
        fact for fact in known_facts() if fact.finding and what.startswith(fact.finding) and wanted & set(fact.units)
    )

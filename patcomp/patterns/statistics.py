"""The work of the rules of a stage: tries, rewrites and seconds of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from patcomp.errors import Problem
from patcomp.ir.locations import describe_location
from patcomp.ir.xdsl import LocationAttr


@dataclass
class RuleStatistics:
    """The work of one rule."""

    tries: int = 0
    rewrites: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Record:
    """One rewrite: which rule, and at which op, by its location."""

    rule: str
    location: LocationAttr

    @property
    def place(self) -> str:
        """Where in the user's program."""
        return describe_location(self.location)


@dataclass(frozen=True)
class Overlap:
    """Two rules of equal priority and size matched at one op; the first one in the catalog was taken."""

    taken: str
    other: str
    place: str

    def __str__(self) -> str:
        return f"{self.taken} and {self.other} both match at {self.place}; {self.taken} comes first in the catalog"


@dataclass
class Statistics:
    """The work of all rules of a stage, in the order of their first try."""

    rules: dict[str, RuleStatistics] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    exhausted: Counter[str] = field(default_factory=Counter)
    """How often the search of a rule ran out of fuel."""
    failures: dict[str, Problem] = field(default_factory=dict)
    """The first problem of each rule that was skipped because it is broken."""
    warnings: list[Problem] = field(default_factory=list)
    """What the user may not expect of the stage's result."""
    sweeps: int = 0

    def record(self, rule: str, rewrote: bool, seconds: float) -> None:
        """Add one try of a rule."""
        entry = self.rules.get(rule)
        if entry is None:
            entry = self.rules[rule] = RuleStatistics()
        entry.tries += 1
        entry.rewrites += rewrote
        entry.seconds += seconds

    def add(self, other: Statistics) -> None:
        """Add the work of another run."""
        for name, entry in other.rules.items():
            mine = self.rules.setdefault(name, RuleStatistics())
            mine.tries += entry.tries
            mine.rewrites += entry.rewrites
            mine.seconds += entry.seconds
        self.records.extend(other.records)
        self.overlaps.extend(other.overlaps)
        self.exhausted.update(other.exhausted)
        self.failures = other.failures | self.failures
        self.warnings.extend(other.warnings)
        self.sweeps += other.sweeps

    @property
    def rewrites(self) -> int:
        return sum(entry.rewrites for entry in self.rules.values())

    @property
    def fired(self) -> dict[str, int]:
        """Number of rewrites of each rule that made any."""
        return {name: entry.rewrites for name, entry in self.rules.items() if entry.rewrites}

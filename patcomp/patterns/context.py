"""What every rule of a run is given, and how the run treats a rule that is broken."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from patcomp.ir.blobs import BlobStore
from patcomp.patterns.match import FUEL
from patcomp.patterns.statistics import Record


@dataclass(eq=False)
class Budget:
    """Allows the first rewrites of a stage and no others, to find the rewrite that changes a program's numbers.

    A stage is deterministic, so the first rewrites are the same with any budget.
    """

    rewrites: int | None = None
    """How many rewrites are allowed; None for any number, of which no record is kept."""
    spent: list[Record] = field(default_factory=list)
    """The rewrites so far."""

    @property
    def exhausted(self) -> bool:
        """Whether no rewrite is allowed any more."""
        return self.rewrites is not None and len(self.spent) >= self.rewrites

    def spend(self, record: Record) -> None:
        """Count a rewrite."""
        if self.rewrites is not None:
            self.spent.append(record)


UNLIMITED = Budget()
"""The budget that allows any number of rewrites."""


@dataclass(frozen=True)
class Context:
    """What every rule of a run is given, and how the run treats a rule that is broken."""

    blobs: BlobStore | None = None
    """The weights of the module, to which new large constants are added."""
    namespace: Any = None
    """The second parameter of procedural rules, with which they build ops."""
    assumed: Collection[str] = ()
    """The names of the assumptions that hold."""
    strict: bool = True
    """Whether a broken rule ends the run. Otherwise the rule is skipped at that op, and `Statistics.failures` has what
    was wrong the first time."""
    budget: Budget = UNLIMITED
    """How many rewrites are allowed."""
    fuel: int = FUEL
    """The number of steps that one attempt of a declarative rule may take."""


PLAIN = Context()
"""The context of a run without weights, of rules without functions."""

"""A limit on the rewrites of a stage, with which the rewrite that changes a program's numbers is found."""

from __future__ import annotations

from dataclasses import dataclass, field

from patcomp.patterns.statistics import Record


@dataclass
class Budget:
    """Allows the first rewrites of a stage and no others.

    A stage is deterministic, so the first rewrites are the same with any budget.
    """

    rewrites: int | None = None
    """How many rewrites are allowed; None for all."""
    spent: list[Record] = field(default_factory=list)
    """The rewrites so far."""

    @property
    def exhausted(self) -> bool:
        """Whether no rewrite is allowed any more."""
        return self.rewrites is not None and len(self.spent) >= self.rewrites

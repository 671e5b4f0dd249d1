"""The options of a conversion, which each stage gets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from patcomp.ir.locations import UNKNOWN
from patcomp.ir.module import IRModule
from patcomp.narrowing.widths import Widths
from patcomp.patterns.context import UNLIMITED, Budget, Context
from patcomp.patterns.statistics import Record, RuleStatistics, Statistics
from patcomp.targets import Target

Sizes = Mapping[tuple[str, int | None], int]
"""Fixed sizes, by the name of an argument and an axis; without an axis, the value of a scalar argument."""


@dataclass(frozen=True)
class Options:
    """The user's options for a conversion."""

    composites: Collection[str] | None = None
    """Names of the composites that stay regions after their recovery; all by default. The others are inlined, because a
    composite's body is the only lowering of some ATen ops."""
    assume: Collection[str] = ()
    """Names of the assumptions under which rules that are not exact for every input may apply; none by default."""
    target: Target | None = None
    """The device that the program is rewritten for; none by default."""
    fixed: Mapping[str, Sizes] = field(default_factory=dict)
    """The sizes of each entry point that are fixed after the stage lower; none by default."""
    keep: Collection[str] = ()
    """The modules and FX nodes whose ops compute in float32 in a program of half precision; none by default."""
    widths: Widths = field(default_factory=Widths)
    """How to lower 64-bit numbers; they are narrowed by default."""
    strict: bool = field(default_factory=lambda: bool(os.environ.get("PATCOMP_STRICT")))
    """Whether an exception of a rule is an error in every stage; by default only in the lower stage, unless the
    environment variable PATCOMP_STRICT is set."""
    verify_all: bool = field(default_factory=lambda: os.environ.get("PATCOMP_VERIFY") == "all")
    """Whether the module is verified after every stage; by default only after some (`Pass.verified`), unless the
    environment variable PATCOMP_VERIFY is `all`."""
    budget: Budget = UNLIMITED
    """How many rewrites a stage may do, to find the one that changes numbers; any number by default. A step that is no
    rule counts as one rewrite of its name."""

    def to_dict(self) -> dict[str, Any]:
        """What decides the program, as plain data for JSON."""
        target = self.target
        return {
            "composites": "all" if self.composites is None else sorted(self.composites),
            "assume": sorted(self.assume),
            "target": "" if target is None else target.name,
            "target_rules": [] if target is None else [*target.rules, *target.steps],
            "without": [] if target is None else [*target.omitted],
            "fixed": {
                entry: {name if axis is None else f"{name}:{axis}": size for (name, axis), size in sizes.items()}
                for entry, sizes in self.fixed.items()
            },
            "keep": sorted(self.keep),
            "int64": self.widths.int64,
            "float64": self.widths.float64,
        }

    def context(self, module: IRModule, namespace: Any, *, strict: bool | None = None) -> Context:
        """What the rules of a stage are given, which build ops with a namespace."""
        strict = self.strict if strict is None else strict
        return Context(module.blobs, namespace, self.assume, strict, self.budget)

    def step(self, statistics: Statistics, name: str, work: Callable[..., int | None], *arguments: Any) -> int:
        """Run a function that rewrites, unless the budget is exhausted, and record what it did under a name.

        Args:
            work: returns how often it rewrote; None if it records its rewrites itself.
        """
        if self.budget.exhausted:
            return 0
        self.budget.spend(Record(name, UNKNOWN))
        started = time.perf_counter()
        count = work(*arguments) or 0
        if count:
            seconds = time.perf_counter() - started
            statistics.add(Statistics({name: RuleStatistics(count, count, seconds)}))
        return count

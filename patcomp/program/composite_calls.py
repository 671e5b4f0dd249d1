"""Which composites a program calls, which rules recovered them, and from which places of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from patcomp.errors import Problem
from patcomp.ir.locations import Origin, origins, rules
from patcomp.ir.module import IRModule, callee


@dataclass(frozen=True)
class CompositeCall:
    """One call of a composite."""

    composite: str
    rule: str
    """The rule that recovered the call; empty if unknown."""
    origins: tuple[Origin, ...]
    """The nodes of the model that the call replaces; the first one produces the result."""

    @property
    def place(self) -> str:
        """The first node, its module and its source line."""
        return str(self.origins[0]) if self.origins else "unknown source"


@dataclass(frozen=True)
class CompositeReport:
    """The composites of a program; the text has a line for each composite, followed by a line for each call."""

    calls: tuple[CompositeCall, ...]
    overlaps: tuple[str, ...] = ()
    """Places where two rules of equal priority and size matched, so that the order of declaration decided."""
    diagnostics: tuple[Problem, ...] = ()
    """The warnings of the conversion."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The largest magnitude of each narrowed int64 input, by entry point and name."""
    left_to_pytorch: tuple[Problem, ...] = ()
    """Why PyTorch had to decompose programs during the conversion."""

    @property
    def counts(self) -> dict[str, int]:
        """How many calls of each composite there are, by composite name."""
        return dict(sorted(Counter(call.composite for call in self.calls).items()))

    def __str__(self) -> str:
        lines = []
        for name, count in self.counts.items():
            lines.append(f"{name}: {count}")
            for call in self.calls:
                if call.composite == name:
                    by = f" by rule {call.rule!r}" if call.rule else ""
                    lines.append(f"  {call.place}{by}")
        lines = lines or ["no composites"]
        if self.overlaps:
            lines += [f"overlapping rules: {len(self.overlaps)}", *(f"  {overlap}" for overlap in self.overlaps)]
        if self.diagnostics:
            lines += [f"warnings: {len(self.diagnostics)}", *(f"  {each}" for each in self.diagnostics)]
        for entrypoint, limits in self.limits.items():
            listed = ", ".join(f"{name} within ±{limit}" for name, limit in limits.items())
            lines.append(f"int64 inputs of @{entrypoint} for which all results fit 32 bits: {listed}")
        lines += [f"left to PyTorch's run_decompositions: {reason}" for reason in self.left_to_pytorch]
        return "\n".join(lines)


def composite_calls(module: IRModule) -> tuple[CompositeCall, ...]:
    """Every call of a composite, in program order."""
    names, calls = module.composite_names(), []
    for op in module.op.walk():
        if op.name == "coreai.invoke":
            called = callee(op)
            if called in names:
                made_by = next(iter(rules(op.location)), "")
                calls.append(CompositeCall(names[called], made_by, origins(op.location)))
    return tuple(calls)

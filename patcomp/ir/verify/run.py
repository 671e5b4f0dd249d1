"""The state that all checks share: the module and the problems found so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from patcomp.errors import Problem, shortened
from patcomp.ir.locations import origins, rules
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation, SSAValue


@dataclass(eq=False)
class VerifierRun:
    """One run of the verifier."""

    module: IRModule
    runtime: bool
    finished: bool = True
    """Whether no stage follows; before the last one, loops need not own their values."""
    problems: list[Problem] = field(default_factory=list)
    graph: str = ""
    """Symbol of the graph that is being checked."""
    graphs: dict[str, Operation] = field(default_factory=dict)
    """The graphs of the module by symbol."""

    def add(self, op: Operation, message: str, advice: str = "") -> None:
        """Add a problem of an op, with the rule or stage that made it and its place in the user's program.

        Args:
            advice: what the user can do about a problem of the model; empty for a defect of a rule.
        """
        where = f"graph @{self.graph}: " if self.graph else ""
        made_by = "".join(f" (made by {name})" for name in rules(op.location)[:1])
        place = next(iter(origins(op.location)), None)
        self.problems.append(
            Problem(
                where + shortened(message) + made_by,  # a broken text has axes and types of any length
                shortened(_signature(op)),
                place.node if place else "",
                place.module_path if place else "",
                place.source if place else "",
                advice,
            )
        )


def _signature(op: Operation) -> str:
    """An op in one line, without its regions and properties: `coreai.add(tensor<2xf32>, ...) -> tensor<2xf32>`."""
    if op.name == "coreai.graph":
        return op.name
    operands, results = _types(op.operands), _types(op.results)
    return f"{op.name}({operands})" + (f" -> {results}" if results else "")


def _types(values: Sequence[SSAValue], shown: int = 8) -> str:
    more = [f"and {len(values) - shown} more"] if len(values) > shown else []
    return ", ".join([*(str(value.type) for value in values[:shown]), *more])

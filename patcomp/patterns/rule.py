"""`Rule`: what a rule matches, what it builds, its examples and its description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.composite import Composite
from patcomp.ir.value import Value
from patcomp.patterns.aspects import Unspecified
from patcomp.patterns.formula import Formula
from patcomp.patterns.op_view import Example, OpView
from patcomp.patterns.pattern import Pattern
from patcomp.patterns.stage import Stage
from patcomp.patterns.targets import TargetCall, target_parts

RuleFunction = Callable[[OpView, Any], Value | Sequence[Value | None] | None]
"""A function of the op and the authoring functions of the target. None is a refusal without a reason; None in a list
stands for a result that nobody reads."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule of a stage. It has either a target or a function that builds the replacement of one op."""

    name: str
    stage: Stage
    ops: tuple[str, ...]
    """The names of the ops that the rule starts from."""
    pattern: Pattern | None = None
    """The ops around the start. A target replaces the ops that the pattern matches; a function is tried at the ops
    where the index finds the pattern's ops and literals."""
    to: Any = None
    """The replacement of a match: a call of a target namespace, a capture, or a list of them."""
    function: Callable[..., Any] | None = None
    """The `RuleFunction` of a rule without a target. The function of a decomposition takes the arguments of the PyTorch
    op, and is traced."""
    composite: Composite | None = None
    """The composite whose calls a function takes, if it starts from a composite and not from an op."""
    examples: tuple[Example, ...] = ()
    unspecified: Unspecified = field(default_factory=dict)
    """The aspects that the rule leaves open, each with the reason."""
    approximation: float | None = None
    """The largest absolute difference of a result from what an approximation replaces; None for another rule."""
    doc: str = ""
    source: str = ""
    """File and line of the declaration."""
    file: str = ""
    """The path of that file."""
    priority: int = 0
    """Rules of higher priority are tried first, whatever their size."""
    size: int = 1
    """The largest number of ops that the rule matches. The driver tries larger rules first."""
    targets: tuple[str, ...] = ()
    """The names of the targets to which a rule of the target stage belongs; others may add it by its name."""
    of_complex: bool = False
    """Whether a rule of the decompose stage takes only calls with complex tensors or numbers."""

    def __repr__(self) -> str:
        return f"<rule {self.name} of {self.stage}, {self.source}>"

    @property
    def is_declarative(self) -> bool:
        """Whether the rule has a pattern and a target, so that only its conditions are code."""
        return self.function is None

    @property
    def is_formula(self) -> bool:
        """Whether the rule has a formula of the op's arguments, and conditions."""
        return isinstance(self.function, Formula)

    @property
    def graph(self) -> Pattern:
        """The pattern of a declarative rule."""
        assert self.pattern is not None
        return self.pattern

    @property
    def example(self) -> Mapping[str, Any] | None:
        """The example's type, number or attribute for each capture, if the rule's tests are drawn from its pattern."""
        return self.examples[0].kwargs if self.examples and self.is_drawn else None

    @property
    def is_drawn(self) -> bool:
        """Whether the rule's tests are programs that are drawn from its pattern, and not those of its examples."""
        return self.is_declarative and not any(item.program for item in self.examples)

    def check_targets(self) -> None:
        """Check that every op of the target exists. All tables must be filled before.

        Raises:
            RuleError: an op does not exist.
        """
        for call in self.target_calls():
            try:
                call.check()
            except RuleError as error:
                raise RuleError(f"rule {self.name} ({self.source}): {error}") from None

    def target_calls(self) -> Iterator[TargetCall]:
        """Every call in the target."""
        return (part for part in target_parts(self.to) if isinstance(part, TargetCall))

"""The error that shows a counterexample, when two results agree, and the catalogs with and without a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from patcomp.errors import EvaluationError, PatcompError
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.xdsl import Block
from patcomp.patterns import Rule, RuleSet

AssetRunner = Callable[[IRModule, Mapping[str, Any]], Mapping[str, Any]]
"""Runs a compiled program on inputs by name, on the runtime or on the evaluator."""

COUNTEREXAMPLE_TOLERANCES = {"f16": 4e-3, "bf16": 3e-2}
"""The tolerance of a result by the narrowest type in which the source computes it, relative to the largest magnitude of
the result. f32 has 2e-5. Integers and bools must be equal."""

_CANCELLED = 1e-2
"""The magnitude of a result that may be a difference of numbers near 1, so that their rounding is in it."""


class Drawn(Protocol):
    """A drawn program of a rule's source."""

    @property
    def rule(self) -> Any: ...

    @property
    def example(self) -> Mapping[str, Any]: ...


class WrongRuleError(AssertionError):
    """A rule is wrong; the attributes and the text have the counterexample."""

    def __init__(self, drawing: Drawn, message: str, source_ir: str, rewritten_ir: str | None = None):
        super().__init__(message)
        self.drawing, self.source_ir, self.rewritten_ir = drawing, source_ir, rewritten_ir
        self.headline = f"rule {drawing.rule.name} ({drawing.rule.source}) {message}"
        self.tensors: dict[str, Any] = {}
        """The inputs, the expected and the actual results, as far as they exist, by name."""

    def __str__(self) -> str:
        parts = [f"{self.headline}\ndrawn: {self.drawing}", f"-- source\n{self.source_ir}"]
        if self.rewritten_ir is not None:
            parts.append(f"-- rewritten\n{self.rewritten_ir}")
        parts += [f"-- {name}\n{value}" for name, value in self.tensors.items()]
        return "\n\n".join(parts)


class InvalidRewriteError(WrongRuleError):
    """A rule raises an exception, or its result is a program that is invalid or does not run."""


def agrees(expected: Any, actual: Any, tolerance: float | None = None, bound: float | None = None) -> bool:
    """Whether a result is close enough to what is expected.

    Args:
        expected, actual: tensors.
        tolerance: by default the tolerance of the expected type.
        bound: the absolute difference that an approximation allows besides.
    """
    from patcomp.evaluate.comparison import compare
    from patcomp.evaluate.eager import static_type_of

    try:
        error = compare("", "", expected, actual)
    except EvaluationError:
        return False  # another shape
    if not (expected.is_floating_point() or expected.is_complex()):
        return error.max_abs == 0
    if tolerance is None:
        tolerance = COUNTEREXAMPLE_TOLERANCES.get(element_name(static_type_of(expected).element_type), 2e-5)
    magnitude = error.max_abs / error.max_rel if error.max_rel else 0.0
    if bound is not None and error.max_abs <= bound + tolerance * magnitude:
        return True
    return error.max_rel <= tolerance or error.max_abs <= tolerance * max(min(magnitude, 1.0), _CANCELLED)


@lru_cache(maxsize=8)  # a set keeps the indexes of its stages, which cost more than a trial
def without_rule(catalog: RuleSet, rule: Rule) -> RuleSet:
    """The catalog without a rule, and without the other patterns that could recover the same composite."""
    return catalog.filter(
        lambda other: other.name != rule.name and not (other.is_declarative and other.stage == "recover")
    )


@lru_cache(maxsize=8)
def with_rule_in_front(catalog: RuleSet, rule: Rule) -> RuleSet:
    """The catalog with a rule that is tried before those of the same priority and size."""
    return catalog.preceded_by([rule], override=True)


def tolerance_of(block: Block) -> float:
    """The tolerance of results, by the narrowest element type in a block."""
    values = [*block.args, *(result for op in block.ops for result in op.results)]
    elements = {element_name(value.type.element_type) for value in values if isinstance(value.type, TensorType)}
    return max(COUNTEREXAMPLE_TOLERANCES.get(element, 2e-5) for element in elements)


def failure_text(error: BaseException) -> str:
    """The message of a rule's exception, with its class if it is not an error of patcomp."""
    return f"fails: {error}" if isinstance(error, PatcompError) else f"fails: {type(error).__name__}: {error}"

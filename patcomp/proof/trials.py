"""A program before and after a rule, run with inputs, and the errors if the two differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from patcomp.errors import EvaluationError, PatcompError, UnsupportedError
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.xdsl import Block
from patcomp.patterns import Rule, RuleSet
from patcomp.rewrites import Options, run_pipeline

Runner = Callable[[IRModule, Mapping[str, Any]], Mapping[str, Any]]
"""Runs a compiled program on inputs by name, on the runtime or on the evaluator."""

TOLERANCES = {"f16": 4e-3, "bf16": 3e-2}
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
        self.remark = ""

    def __str__(self) -> str:
        parts = [f"{self.headline}\ndrawn: {self.drawing}", f"-- source\n{self.source_ir}"]
        if self.rewritten_ir is not None:
            parts.append(f"-- rewritten\n{self.rewritten_ir}")
        parts += [f"-- {name}\n{value}" for name, value in self.tensors.items()]
        return "\n\n".join([*parts, *([self.remark] if self.remark else [])])


class InvalidRewriteError(WrongRuleError):
    """A rule raises an exception, or its result is a program that is invalid or does not run."""


class NotEquivalentError(WrongRuleError):
    """A rule computes other numbers than the ops that it replaces."""

    def __init__(self, trial: Trial, where: str, output: str, actual: Any, remark: str):
        message = f"computes something else than what it replaces, on the {where}"
        super().__init__(trial.drawing, message, trial.source_ir, trial.rewritten_ir)
        self.inputs, self.expected, self.actual, self.remark = trial.inputs, trial.expected[output], actual, remark
        self.tensors = {f"input {name}": value for name, value in trial.inputs.items()}
        self.tensors |= {f"expected {output}": self.expected, f"actual {output}": actual}


@dataclass(frozen=True, eq=False)
class Trial:
    """A program that a rule matched, before and after, with inputs and eager PyTorch's results."""

    drawing: Drawn
    source: IRModule
    source_ir: str
    rewritten: IRModule
    """The compiled program after the rule."""
    rewritten_ir: str
    """The text of the program directly after the rule."""
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    tolerance: float | None = None
    """The tolerance of all results; None for that of each result's own type."""

    def check(self, catalog: RuleSet, run: Runner | None = None, where: str = "evaluator") -> None:
        """Run the rewritten program and compare its results.

        Args:
            catalog: the rules that compile the untouched source, so that an error can tell whether the rule is wrong.
            run: runs the program; by default the reference evaluator.
            where: the name of the evaluator or runtime in messages.

        Raises:
            NotEquivalentError: a result differs.
            InvalidRewriteError: the program does not run.
        """
        from patcomp.evaluate import evaluate

        runner: Runner = run or (lambda module, inputs: evaluate(module, dict(inputs)))
        try:
            outputs = self._run(self.rewritten, runner)
        except RuntimeError as error:
            message = f"made a program that does not run on the {where}: {error}"
            raise InvalidRewriteError(self.drawing, message, self.source_ir, self.rewritten_ir) from error
        for name in self.expected:
            if not self._agrees(name, outputs[name]):
                raise NotEquivalentError(self, where, name, outputs[name], self._remark(catalog, name, runner))

    def _remark(self, catalog: RuleSet, name: str, runner: Runner) -> str:
        """A sentence that says whether the rest of the catalog computes the expected numbers."""
        others = without_rule(catalog, self.drawing.rule)
        try:
            compiled = run_pipeline(self.source.clone(), others, Options(composites=())).module
        except UnsupportedError:
            return "The rest of the catalog does not compile the source."
        if self._agrees(name, self._run(compiled, runner)[name]):
            return "The source gives the expected numbers when the rest of the catalog compiles it: the rule is wrong."
        return "The source without the rule does not give the expected numbers either: look at its lowering."

    def _run(self, module: IRModule, runner: Runner) -> dict[str, Any]:
        from patcomp.evaluate import prepare_input
        from patcomp.evaluate.element_types import to_tensor

        arguments = module.graph("main").regions[0].block.args
        inputs: dict[str, Any] = {}
        for (name, value), argument in zip(self.inputs.items(), arguments, strict=True):
            assert isinstance(argument.type, TensorType)
            inputs[name] = prepare_input(value, argument.type, name)
        return {name: to_tensor(value) for name, value in runner(module, inputs).items()}

    def _agrees(self, name: str, actual: Any) -> bool:
        return agrees(self.expected[name], actual, self.tolerance)


def agrees(expected: Any, actual: Any, tolerance: float | None = None) -> bool:
    """Whether a result is close enough to what is expected.

    Args:
        expected, actual: tensors.
        tolerance: by default the tolerance of the expected type.
    """
    from patcomp.evaluate import compare
    from patcomp.evaluate.eager import static_type_of

    try:
        error = compare("", "", expected, actual)
    except EvaluationError:
        return False  # another shape
    if not (expected.is_floating_point() or expected.is_complex()):
        return error.max_abs == 0
    if tolerance is None:
        tolerance = TOLERANCES.get(element_name(static_type_of(expected).element_type), 2e-5)
    magnitude = error.max_abs / error.max_rel if error.max_rel else 0.0
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
    return max(TOLERANCES.get(element, 2e-5) for element in elements)


def failure_text(error: BaseException) -> str:
    """The message of a rule's exception, with its class if it is not an error of patcomp."""
    return f"fails: {error}" if isinstance(error, PatcompError) else f"fails: {type(error).__name__}: {error}"

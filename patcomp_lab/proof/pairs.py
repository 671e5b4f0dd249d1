"""Programs before and after a rule, which run on numbers and on symbols.

A `RulePair` of a rule with a pattern is the drawn source, and the source after the rule alone: both run as they are, by
eager PyTorch or by the reference evaluator. A pair of an op is the op, and the compiled program. A pair of a
decomposition is the op and the decomposition, both in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from patcomp.errors import EvaluationError, PatcompError
from patcomp.evaluate.eager import (
    eager_arguments,
    eager_implementation,
    is_pointwise,
    random_tensor,
    run_op,
    with_special_values,
)
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.registry import EvaluatedOp, implementations
from patcomp.ir.aten import AtenOp
from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.module import IRModule, function_type
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.region import RegionOp
from patcomp.ir.traits import Elementwise
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Attribute, SSAValue
from patcomp.patterns import Context, Rejected, Rule, RuleSet, Stage, run
from patcomp.patterns.example_types import ExampleType, limits_of, parse_type
from patcomp.patterns.language import OpNode
from patcomp.questions.reach import namespace_of
from patcomp.rewrites import Options
from patcomp.rewrites.normalize import normalize
from patcomp_lab.proof.counterexample import InvalidRewriteError, WrongRuleError, failure_text, tolerance_of
from patcomp_lab.proof.drawing import Drawing
from patcomp_lab.proof.sources import examples_of, input_of, opened_program
from patcomp_lab.proof.symbols import FLOAT_DTYPES, Symbols
from patcomp_lab.proof.worlds import World


@dataclass(frozen=True)
class RunInput:
    """What an input of a run is made of."""

    type: str
    """Its static type, with a range of values if it has one."""
    given: Any = None
    """The tensor itself, if only one makes sense."""

    @property
    def is_free_integer(self) -> bool:
        """Whether it is a tensor of integers without a range of values."""
        type_ = ExampleType.parsed(self.type)
        return self.given is None and type_ is not None and type_.is_integer and type_.limits is None


class RulePair:
    """A program before and after a rule."""

    rule: Rule
    drawing: Any
    runs: Sequence[Mapping[str, RunInput]]
    """The inputs of each run, by name."""
    source_ir: str
    rewritten_ir: str | None
    is_elementwise: bool = False
    """Whether each element of the results depends on one element of each input."""
    shares_kernel: bool = False
    """Whether both sides run the same code, so that no comparison says anything."""
    shares_definition: bool = False
    """Whether both sides run the same code on symbols."""
    tolerance: float | None = None
    """The tolerance of a rule that may round in another way; by default that of each result's type."""

    def before(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The results of the source.

        Raises:
            EvaluationError: the source does not take the inputs.
        """
        raise NotImplementedError

    def after(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The results after the rule.

        Raises:
            EvaluationError: the rewritten program does not take the inputs.
        """
        raise NotImplementedError

    def wrong(self, message: str, inputs: Mapping[str, Any], **tensors: Any) -> WrongRuleError:
        """The error that shows a difference."""
        error = WrongRuleError(self.drawing, message, self.source_ir, self.rewritten_ir)
        error.tensors = {f"input {name}": value for name, value in inputs.items()}
        error.tensors |= {name.replace("_", " "): value for name, value in tensors.items()}
        return error


# ---- rules with a pattern, and recorded programs -----------------------------------------------------


@dataclass
class Rewritten(RulePair):
    """A program, and what the rule alone makes of it."""

    drawing: Drawing
    source: IRModule
    module: IRModule
    runs: Sequence[Mapping[str, RunInput]]

    @property
    def rule(self) -> Rule:  # type: ignore[override]
        return self.drawing.applied or self.drawing.rule

    @property
    def source_ir(self) -> str:  # type: ignore[override]
        return self.source.text()

    @property
    def rewritten_ir(self) -> str:  # type: ignore[override]
        return self.module.text()

    @cached_property
    def is_elementwise(self) -> bool:  # type: ignore[override]
        """Whether each element of the results depends on one element of each input."""
        return is_elementwise(self.source)

    @cached_property
    def tolerance(self) -> float:  # type: ignore[override]
        """The tolerance of the narrowest type of the source."""
        return tolerance_of(self.source.graph("main").regions[0].block)

    def before(self, inputs: Mapping[str, Any]) -> list[Any]:
        return run_module(self.source, list(inputs.values()))

    def after(self, inputs: Mapping[str, Any]) -> list[Any]:
        return run_module(self.module, list(inputs.values()))


def rewritten(drawing: Drawing, catalog: RuleSet) -> Rewritten | None:
    """A drawn program before and after its rule; None if it is not valid, or the rule does not match it.

    Raises:
        InvalidRewriteError: the rule raises an exception, or its result is an invalid program.
    """
    rule = drawing.applied or drawing.rule
    try:
        source, captures = opened_program(drawing)
        graph = source.graph("main")
        block = graph.regions[0].block
        graph.properties["function_type"] = function_type(block)
        if drawing.rule.graph.dialect is not aten_namespace or any(isinstance(op, RegionOp) for op in block.ops):
            verify(source, runtime=False)
        if rule.stage is Stage.RECOVER:  # these rules may count on promotions that are explicit
            normalize(source, catalog.stage("normalize"), Options(strict=True))
    except (PatcompError, ArithmeticError, LookupError, ValueError, TypeError, AssertionError, Rejected):
        return None  # sizes, numbers or element types that do not fit each other, also in the body of a composite
    after = source.clone()
    try:
        fired = run(after.graph("main"), RuleSet([rule]), Context(after.blobs, namespace_of(rule))).fired
    except Exception as error:  # a rule's functions may raise any exception
        if drawing.applied is not None and _calls_composites(drawing):
            return None  # a composite does not say which calls make sense; a run that is not strict leaves this one
        raise InvalidRewriteError(drawing, failure_text(error), source.text()) from error
    if rule.name not in fired:
        return None
    remove_dead_ops(after.graph("main"))
    runs = []
    for example in examples_of(drawing):
        names = {argument: captures.get(argument) for argument in block.args}
        runs.append({value.name_hint or "": _input(drawing, example, name) for value, name in names.items()})
    try:
        run_module(source, [made_of(each) for each in runs[0].values()])
    except EvaluationError:
        return None
    try:
        verify(after, runtime=False)
    except PatcompError as error:
        raise InvalidRewriteError(drawing, failure_text(error), source.text(), after.text()) from error
    return Rewritten(drawing, source, after, runs)


def _calls_composites(drawing: Drawing) -> bool:
    nodes = drawing.rule.graph.nodes
    return any(isinstance(node, OpNode) and node.spec.composite is not None for node in nodes)


def _input(drawing: Drawing, example: Mapping[str, Any], capture: str | None) -> RunInput:
    if capture is None:
        first = next(name for name, value in example.items() if isinstance(value, str))
        return RunInput(example[first])
    given = input_of(drawing, example, capture)
    return RunInput("", given) if given is not None else RunInput(example[capture])


def made_of(given: RunInput, special: Sequence[float] = (), seed: int = 0) -> Tensor:
    """A tensor for an input."""
    if given.given is not None:
        return given.given
    limits = limits_of(given.type)
    value = random_tensor(parse_type(given.type), limits, seed)
    return with_special_values(value, () if limits else special, seed)


class _Lifting(Machine):
    """An interpreter for which constants of floats are symbols of a world."""

    def __init__(self, module: IRModule, world: World):
        super().__init__(module, others=eager_implementation)
        self.world = world

    def constant(self, attribute: Attribute) -> Tensor:
        value = super().constant(attribute)
        return Symbols(self.world.numbers(value), value.dtype, self.world) if value.dtype in FLOAT_DTYPES else value


def is_elementwise(module: IRModule) -> bool:
    """Whether each element of the results depends on one element of each input."""
    block = module.graph("main").regions[0].block
    return all(
        op.has_trait(Elementwise)
        or op.name in ("coreai.constant", "coreai.output", "coreai.cast", "aten._to_copy")
        or (isinstance(op, AtenOp) and is_pointwise(op.name))
        for op in block.ops
    )


def run_module(module: IRModule, inputs: Sequence[Any]) -> list[Any]:
    """The results of a module of ops of either dialect.

    The inner values of PyTorch's ops take the types that PyTorch gives them, because the types in a graph that was made
    for a test are guesses.

    Raises:
        EvaluationError: an op does not take its operands, or is not known.
    """
    block = module.graph("main").regions[0].block
    world = next((value.world for value in inputs if isinstance(value, Symbols) and value.world.lifts_constants), None)
    machine = Machine(module, others=eager_implementation) if world is None else _Lifting(module, world)
    if not any(isinstance(op, AtenOp) for op in block.ops):
        return [value for value in machine.run_block(block, inputs, {}) if isinstance(value, Tensor)]
    values: dict[SSAValue, Any] = dict(zip(block.args, inputs, strict=True))
    for op in block.ops:
        if op is block.last_op:
            break
        operands = [values[operand] for operand in op.operands]
        if op.name == "coreai.constant":
            made: Any = [machine.constant(op.properties["value"])]
        elif isinstance(op, RegionOp):
            made = machine.run_block(op.body.block, operands, {})
        elif isinstance(op, AtenOp):
            made = run_op(op.name, eager_arguments(op, values))
        elif op.name in implementations():
            made = machine.run_op(EvaluatedOp(op, machine, values), implementations()[op.name], operands)
        else:
            raise EvaluationError(f"{op.name} is not known")
        values.update(zip(op.results, made, strict=False))
    assert block.last_op is not None
    return [values[operand] for operand in block.last_op.operands]

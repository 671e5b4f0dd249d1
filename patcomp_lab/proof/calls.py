"""Calls of one op before and after a rule: compiled programs, and decompositions in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from patcomp.errors import EvaluationError, UnsupportedError
from patcomp.evaluate.eager import (
    DATA_DEPENDENT,
    call_of,
    is_pointwise,
    overload_of,
    results_of,
    without_data,
)
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name, shape_of, tensor
from patcomp.patterns import Context, Rejected, Rule, RuleSet, Stage, run
from patcomp.questions.reach import namespace_of
from patcomp.rewrites import Options, run_pipeline
from patcomp_lab.proof.counterexample import InvalidRewriteError, failure_text, with_rule_in_front
from patcomp_lab.proof.drawing import open_type
from patcomp_lab.proof.op_calls import (
    OpDrawing,
    OperatorCall,
    call_arguments_of,
    called,
    compared_results,
    is_of_complex,
    is_of_operands,
    program_of_call,
)
from patcomp_lab.proof.pairs import RulePair, RunInput, run_module
from patcomp_lab.proof.same_code import runs_definition, shares_kernel
from patcomp_lab.proof.symbols import Symbols


@dataclass
class Compiled(RulePair):
    """A call of an op, and the program that the catalog with the rule makes of it."""

    drawing: OpDrawing
    source: IRModule
    module: IRModule
    runs: Sequence[Mapping[str, RunInput]]
    source_ir: str
    rewritten_ir: str | None

    @property
    def rule(self) -> Rule:  # type: ignore[override]
        return self.drawing.rule

    def before(self, inputs: Mapping[str, Any]) -> list[Any]:
        return run_module(self.source, list(inputs.values()))

    def after(self, inputs: Mapping[str, Any]) -> list[Any]:
        return run_module(self.module, compiled_inputs(self.module, inputs))


def compiled(drawing: OpDrawing, catalog: RuleSet) -> Compiled | None:
    """A call before and after its rule; None if PyTorch or the rule refuses the call.

    Raises:
        InvalidRewriteError: the rule raises an exception, or its result is an invalid program.
    """
    examples = [drawing.example, *({**drawing.example, **run} for run in drawing.runs)]
    calls = [called(replace(drawing, example=example, runs=())) for example in examples]
    if (first := _first(calls)) is None:
        return None
    types = list(first.types)
    opened = dict(drawing.example)
    for name in drawing.runs[0] if drawing.runs else ():
        opened[name] = _opened(drawing.example[name], [given[name] for given in drawing.runs])
    for call in calls[1:]:
        assert call is not None
        types = [_opened_type(one, other) for one, other in zip(types, call.types, strict=True)]
    runs = [_inputs_of(replace(drawing, example=example)) for example in examples]
    general = replace(drawing, example=opened, runs=())
    for returned in dict.fromkeys([compared_results(drawing, first), 1]):
        source = program_of_call(general, types, returned)
        try:
            made = _by_the_rule_alone(drawing, source) or _by_the_catalog(drawing, source, catalog)
        except InvalidRewriteError as error:
            if is_of_operands(error) and not (drawing.aspect == "the example" or is_pointwise(drawing.op)):
                return None
            raise
        if made is not None:
            pair = Compiled(drawing, source, made[0], runs, source.text(), made[1])
            pair.is_elementwise = is_pointwise(drawing.op)
            return pair if drawing.compared else None
    return None


def _by_the_rule_alone(drawing: OpDrawing, source: IRModule) -> tuple[IRModule, str] | None:
    """What a normalization alone makes of a call, in PyTorch's ops; None for another rule, or one that refuses it."""
    if drawing.rule.stage is not Stage.NORMALIZE:
        return None
    module = source.clone()
    context = Context(module.blobs, namespace_of(drawing.rule))
    try:
        fired = run(module.graph("main"), RuleSet([drawing.rule]), context).fired
    except Exception as error:  # whatever a rule's function raises
        raise InvalidRewriteError(drawing, failure_text(error), source.text()) from error
    return (module, module.text()) if drawing.rule.name in fired else None


def _by_the_catalog(drawing: OpDrawing, source: IRModule, catalog: RuleSet) -> tuple[IRModule, str] | None:
    """The compiled program of a call, and its text after the rule's stage; None if the rule does not take the call, or
    another stage refuses what is left."""
    texts: list[str] = []
    module, rules = source.clone(), with_rule_in_front(catalog, drawing.rule)

    def keep(stage: str, made: IRModule) -> None:
        if stage == drawing.rule.stage:
            texts.append(made.text())

    try:
        compilation = run_pipeline(module, rules, Options(strict=True), after_stage=keep)
    except UnsupportedError:
        return None
    except Exception as error:  # whatever a rule's function raises
        raise InvalidRewriteError(drawing, failure_text(error), source.text()) from error
    if not any(drawing.rule.name in report.statistics.fired for report in compilation.reports):
        return None
    return module, texts[-1]


def _first(calls: Sequence[OperatorCall | None]) -> OperatorCall | None:
    """The first call; None if one is not valid, or has other results than the first."""
    first = calls[0]
    if first is None:
        return None
    same = [[type_.element_type for type_ in call.types] for call in calls if call is not None]
    ranks = [[len(type_.get_shape()) for type_ in call.types] for call in calls if call is not None]
    complete = len(same) == len(calls) and all(s == same[0] for s in same) and all(r == ranks[0] for r in ranks)
    return first if complete else None


def _opened(value: Any, others: Sequence[Any]) -> Any:
    """A type, or a list of types; each size that differs between the runs becomes open."""
    if isinstance(value, list | tuple):
        return [_opened(item, [other[index] for other in others]) for index, item in enumerate(value)]
    return open_type(value, others) if isinstance(value, str) else value


def _opened_type(one: TensorType, other: TensorType) -> TensorType:
    sizes = zip(shape_of(one), shape_of(other), strict=True)
    return tensor(tuple(a if a == b else None for a, b in sizes), one.element_type)


def _inputs_of(drawing: OpDrawing) -> dict[str, RunInput]:
    inputs: dict[str, RunInput] = {}

    def tensor(text: str) -> None:
        inputs[f"x{len(inputs)}"] = RunInput(text)

    call_arguments_of(drawing, tensor)
    return inputs


def compiled_inputs(module: IRModule, inputs: Mapping[str, Any]) -> list[Any]:
    """Inputs in the types that a compiled program has for them.

    Raises:
        EvaluationError: a number does not fit 32 bits.
    """
    given = []
    for (name, value), argument in zip(inputs.items(), module.graph("main").regions[0].block.args, strict=True):
        assert isinstance(argument.type, TensorType)
        if isinstance(value, Symbols):
            given.append(value.to(TORCH_DTYPES[element_name(argument.type.element_type)]))
        else:
            given.append(prepare_input(value, argument.type, name))
    return given


@dataclass
class DecomposedCall(RulePair):
    """An op of PyTorch, and a decomposition of it, both in PyTorch."""

    drawing: OpDrawing
    call: OperatorCall
    runs: Sequence[Mapping[str, RunInput]] = ()
    source_ir: str = ""
    rewritten_ir: str | None = None

    @property
    def rule(self) -> Rule:  # type: ignore[override]
        return self.drawing.rule

    def before(self, inputs: Mapping[str, Any]) -> list[Any]:
        return self._results(overload_of(self.drawing.op), inputs)

    def after(self, inputs: Mapping[str, Any]) -> list[Any]:
        return self._results(self.rule.function, inputs)

    @cached_property
    def shares_kernel(self) -> bool:  # type: ignore[override]
        """Whether both sides run the kernel of the op, on numbers too."""
        args, kwargs = call_of(self.drawing.op, self.call.arguments)
        op = overload_of(self.drawing.op)
        return shares_kernel(op, (args, kwargs), partial(self._function, *args, **kwargs), partial(op, *args, **kwargs))

    @cached_property
    def shares_definition(self) -> bool:  # type: ignore[override]
        """Whether the decomposition runs PyTorch's own definition of the op; symbols of the op run this definition,
        too."""
        args, kwargs = call_of(self.drawing.op, self.call.arguments)
        return runs_definition(overload_of(self.drawing.op), partial(self._function, *args, **kwargs))

    @property
    def _function(self) -> Any:
        return self.rule.function

    def _results(self, function: Any, inputs: Mapping[str, Any]) -> list[Any]:
        remaining = iter(inputs.values())
        arguments = call_arguments_of(self.drawing, lambda _: next(remaining))
        args, kwargs = call_of(self.drawing.op, arguments)
        try:
            made = results_of(function(*args, **kwargs))
        except (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError, AssertionError, Rejected) as error:
            raise EvaluationError(f"{self.drawing.op}: {error}") from error
        return made[: compared_results(self.drawing, self.call)]


def decomposed(drawing: OpDrawing) -> DecomposedCall | None:
    """A call of an op, and its decomposition; None if PyTorch or the decomposition refuses the call."""
    call = called(drawing)
    assert drawing.rule.function is not None
    if call is None or (drawing.rule.of_complex and not is_of_complex(call)):
        return None
    args, kwargs = call_of(drawing.op, call.arguments)
    try:
        if drawing.compared:
            made = drawing.rule.function(*args, **kwargs)
        else:
            with without_data() as stripped:
                made = drawing.rule.function(*stripped(args), **stripped(kwargs))
    except Rejected:
        return None
    except Exception as error:  # whatever a rule's function raises
        if not drawing.compared and isinstance(error, (*DATA_DEPENDENT, RuntimeError)):
            return None
        raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
    if made is NotImplemented:
        return None
    if (given := len(results_of(made))) != len(call.results):
        message = f"gives {given} results for the {len(call.results)} of {drawing.op}"
        raise InvalidRewriteError(drawing, message, str(drawing))
    return DecomposedCall(drawing, call, [_inputs_of(drawing)], str(drawing)) if drawing.compared else None

"""Tests that convert a whole program: examples that are programs of several ops, and decompositions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from patcomp import AIProgram, TorchConverter
from patcomp.errors import EvaluationError, RuleError, StageError
from patcomp.evaluate.eager import call_of, overload_of
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.types import TensorType
from patcomp.patterns import Rule, Stage
from patcomp_lab.proof.counterexample import AssetRunner, InvalidRewriteError, WrongRuleError, agrees, failure_text
from patcomp_lab.proof.examination import CheckOutcome
from patcomp_lab.proof.examples import convert_example, fired_in
from patcomp_lab.proof.op_calls import (
    OpDrawing,
    OperatorCall,
    call_arguments_of,
    called,
    compared_results,
    examples_of_op,
)


def converted_checks(
    rule: Rule, catalog: Sequence[ModuleType], runtime: AssetRunner | None = None
) -> list[CheckOutcome]:
    """The checks of a rule that need a conversion from export on.

    Args:
        rule: a rule of the catalog.
        catalog: the catalogs, as `TorchConverter` takes them.
        runtime: runs converted decompositions on the Core AI runtime too.
    """
    if rule.stage is Stage.DECOMPOSE:
        return [_converted_calls(rule, catalog, runtime)]
    programs = [item for item in rule.examples if item.program]
    if not programs:
        return []
    check = CheckOutcome("programs of several ops")
    for item in programs:
        try:
            program, model, inputs = convert_example(rule, item, catalog)
        except RuleError as error:
            check.failure = error
            continue
        verification = program.verify_against(model, inputs, backends=["evaluator"])
        if rule.name not in fired_in(program):
            check.failure = RuleError(f"rule {rule.name} ({rule.source}) does not fire in its example {item}")
        elif not verification.passed:
            check.failure = RuleError(
                f"rule {rule.name} ({rule.source}) is wrong in its example {item}: {verification}"
            )
        else:
            check.runs += 1
    return [check]


class _Calling(torch.nn.Module):
    """A call of one op, whose tensors are the inputs."""

    def __init__(self, drawing: OpDrawing):
        super().__init__()
        self.drawing = drawing

    def forward(self, *tensors: torch.Tensor) -> Any:
        remaining = iter(tensors)
        args, kwargs = call_of(self.drawing.op, call_arguments_of(self.drawing, lambda _: next(remaining)))
        return overload_of(self.drawing.op)(*args, **kwargs)


def _converted_calls(rule: Rule, catalog: Sequence[ModuleType], runtime: AssetRunner | None) -> CheckOutcome:
    """The check that a converted program with the decomposition computes the right numbers."""
    check = CheckOutcome("converted")
    for drawing in examples_of_op(rule):
        call = called(drawing)
        if call is None:
            continue
        try:
            program = _converted(drawing, call, catalog)
            if program is not None:
                _check_outputs(drawing, call, program, runtime)
        except (AssertionError, RuleError) as error:
            check.failure = error
            break
        check.runs += program is not None
    return check


def _converted(drawing: OpDrawing, call: OperatorCall, catalog: Sequence[ModuleType]) -> AIProgram | None:
    """The converted program of a call; None for a call of complex numbers that the conversion refuses."""
    try:
        exported = torch.export.export(_Calling(drawing), tuple(call.inputs.values()), strict=False)
        converter = TorchConverter(catalog=catalog).add_exported_program(exported)
        program = converter.to_coreai()
    except StageError as error:
        raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
    except Exception as error:  # any exception of export, and refusals
        if drawing.rule.of_complex:
            return None
        raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
    if not drawing.rule.of_complex:
        imported = converter.imported().text()
        if drawing.op in imported:
            raise InvalidRewriteError(drawing, f"is never used: another rule takes {drawing.op}", imported)
    return program


def _check_outputs(drawing: OpDrawing, call: OperatorCall, program: AIProgram, runtime: AssetRunner | None) -> None:
    """Compares a converted program with eager PyTorch.

    Raises:
        WrongRuleError: a result differs.
    """
    inputs: dict[str, Any] = {}
    arguments = program.module.graph("main").regions[0].block.args
    for name, value, argument in zip(program.input_names(), call.inputs.values(), arguments, strict=True):
        assert isinstance(argument.type, TensorType)
        try:
            inputs[name] = prepare_input(value, argument.type, name)
        except EvaluationError:
            return  # a number does not fit 32 bits
    runs: list[AssetRunner] = [lambda _, given: program.run(given)]
    for run in [*runs, runtime] if runtime is not None else runs:
        outputs = run(program.module, inputs)
        for index, name in enumerate(program.output_names()[: compared_results(drawing, call)]):
            given = outputs[name]
            made = to_tensor(given if hasattr(given, "shape") and given.shape else np.asarray(given))
            if not agrees(call.results[index], made):
                error = WrongRuleError(drawing, "computes something else than the op", program.stages["import"])
                error.tensors = {f"input {name}": value for name, value in call.inputs.items()}
                error.tensors |= {f"expected y{index}": call.results[index], f"actual y{index}": made}
                raise error

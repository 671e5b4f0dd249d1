"""Tests that convert a whole program: examples that are programs of several ops, and decompositions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch

from patcomp import AIProgram, TorchConverter
from patcomp.errors import EvaluationError, RuleError, StageError
from patcomp.evaluate import prepare_input
from patcomp.evaluate.eager import call_of, overload_of
from patcomp.evaluate.element_types import to_tensor
from patcomp.ir.types import TensorType
from patcomp.patterns import Rule, Stage
from patcomp.patterns.aspects import is_left_open
from patcomp.proof.examination import Check
from patcomp.proof.examples import convert_example, fired_in
from patcomp.proof.op_equivalence import OperatorCall, arguments_of, called, compared_results, op_drawings, wrong_result
from patcomp.proof.trials import InvalidRewriteError, Runner, agrees, failure_text
from patcomp.proof.variations import OpDrawing

_OF_EACH_ASPECT = 1
"""How many calls are exported for each aspect; export takes most of the time."""


def converted_checks(rule: Rule, catalog: Sequence[ModuleType], runtime: Runner | None = None) -> list[Check]:
    """The checks of a rule that need a conversion from export on.

    Args:
        rule: a rule of the catalog.
        catalog: the catalogs, as `TorchConverter` takes them.
        runtime: runs converted decompositions on the Core AI runtime too.
    """
    if rule.stage is Stage.IMPORT:
        return [_converted_calls(rule, catalog, runtime)]
    programs = [item for item in rule.examples if item.program]
    if not programs:
        return []
    check = Check("programs of several ops")
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
        args, kwargs = call_of(self.drawing.op, arguments_of(self.drawing, lambda _: next(remaining)))
        return overload_of(self.drawing.op)(*args, **kwargs)


def _converted_calls(rule: Rule, catalog: Sequence[ModuleType], runtime: Runner | None) -> Check:
    """The check that a converted program with the decomposition computes the right numbers."""
    check, seen = Check("converted"), Counter[str]()
    for drawing in op_drawings(rule):
        is_open = not drawing.compared or is_left_open(rule.unspecified, drawing.aspect)
        if is_open or seen[drawing.aspect] == _OF_EACH_ASPECT:
            continue
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
        seen[drawing.aspect] += program is not None
        check.runs += program is not None
    return check


def _converted(drawing: OpDrawing, call: OperatorCall, catalog: Sequence[ModuleType]) -> AIProgram | None:
    """The converted program of a call; None if the conversion refuses it, which is an error for an example."""
    is_example = drawing.aspect == "the example"
    try:
        exported = torch.export.export(_Calling(drawing), tuple(call.inputs.values()), strict=False)
        converter = TorchConverter(catalog=catalog).add_exported_program(exported)
        program = converter.to_coreai()
    except StageError as error:
        raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
    except Exception as error:  # any exception of export, and refusals
        if is_example:
            raise InvalidRewriteError(drawing, failure_text(error), str(drawing)) from error
        return None
    if is_example and not drawing.rule.of_complex:
        imported = converter.imported().text()
        if drawing.op in imported:
            raise InvalidRewriteError(drawing, f"is never used: another rule takes {drawing.op}", imported)
    return program


def _check_outputs(drawing: OpDrawing, call: OperatorCall, program: AIProgram, runtime: Runner | None) -> None:
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
    runs: list[Runner] = [lambda _, given: program.run(given)]
    for run in [*runs, runtime] if runtime is not None else runs:
        outputs = run(program.module, inputs)
        for index, name in enumerate(program.output_names()[: compared_results(drawing, call)]):
            given = outputs[name]
            made = to_tensor(given if hasattr(given, "shape") and given.shape else np.asarray(given))
            if not agrees(call.results[index], made):
                raise wrong_result(drawing, call, index, made, program.stages["import"])

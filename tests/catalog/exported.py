"""One ATen op as a program that `torch.export` made, converted and compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir import aten
from patcomp.patterns import Example, Rule
from tests.catalog.cases import Case, assert_agrees, eager_argument, make_case, overload_of


class Call(nn.Module):
    """One op, called with the tensors of a case as inputs."""

    def __init__(self, case: Case):
        super().__init__()
        self.op = overload_of(case.op)
        schema = aten.schema_of(case.op)
        assert schema is not None
        self.arguments = {name: eager_argument(value, schema[name].type) for name, value in case.arguments.items()}

    def forward(self, *tensors: torch.Tensor) -> Any:
        remaining = iter(tensors)

        def filled(value: Any) -> Any:
            if isinstance(value, list):
                return [filled(item) for item in value]
            return next(remaining) if isinstance(value, torch.Tensor) else value

        return self.op(**{name: filled(value) for name, value in self.arguments.items()})


def staged(case: Case) -> TorchConverter:
    """A converter with the program of a case, exported and not decomposed.

    Raises:
        UnsupportedError: it is refused.
    """
    exported = torch.export.export(Call(case), tuple(case.inputs), strict=False)
    return TorchConverter().add_exported_program(exported)


def convert(case: Case) -> AIProgram:
    """The program of a case, exported and not decomposed.

    Raises:
        UnsupportedError: it is refused.
    """
    return staged(case).to_coreai()


def check(case: Case, program: AIProgram, native: Native) -> None:
    """The program's results are eager's, on the reference evaluator and on the real runtime."""
    block = program.module.graph("main").regions[0].block
    inputs = {
        name: prepare_input(value, argument.type, name)  # type: ignore[arg-type]
        for name, value, argument in zip(program.input_names(), case.inputs, block.args, strict=True)
    }
    for where, outputs in (("evaluator", program.run(inputs)), ("runtime", native.run(program.module, inputs))):
        numbered = {f"y{index}": outputs[name] for index, name in enumerate(program.output_names())}
        assert_agrees(case, numbered, where)


def decomposition_examples(rules: Iterable[Rule]) -> list[Any]:
    """The parameters `rule, example` of all examples of decompositions. CI runs the first two of each rule."""
    return [
        pytest.param(
            rule, example, id=f"{example.op or rule.ops[0]}({', '.join(map(str, example.args))})",
            marks=[pytest.mark.slow] if place > 1 else [],
        )
        for rule in rules
        for place, example in enumerate(rule.examples)
    ]  # fmt: skip


def check_parts(rule: Rule, example: Example, native: Native) -> None:
    """Check that the op of an example is taken apart on import, and that the numbers are eager's."""
    case = make_case(example.op or rule.ops[0], example.args, example.kwargs)
    converter = staged(case)
    if not rule.of_complex:  # of complex numbers there are the same ops on the parts
        assert case.op not in {op.name for op in converter.imported().op.walk()}
    check(case, converter.to_coreai(), native)

"""Generated from the `examples` of every decomposition: taken apart on import, the numbers are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from native import Native
from torch import nn

from catalog.cases import Case, assert_agrees, eager_argument, make_case, overload_of
from patcomp import TorchConverter
from patcomp.ir import aten
from patcomp.ir.evaluate import prepare_input
from patcomp.patterns import Decomposition, Example
from patterns_catalog import default_decompositions

EXAMPLES = [
    pytest.param(rule, example, id=f"{example.op or rule.ops[0]}({', '.join(map(str, example.args))})")
    for rule in default_decompositions()
    if isinstance(rule, Decomposition)
    for example in rule.examples
]


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


def test_every_decomposition_has_an_example_and_a_sentence() -> None:
    found = [rule for rule in default_decompositions() if isinstance(rule, Decomposition)]
    assert [rule.name for rule in found if not (rule.examples and rule.doc)] == []


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_the_parts_agree(rule: Decomposition, example: Example, native: Native) -> None:
    case = make_case(example.op or rule.ops[0], example.args, example.kwargs)
    exported = torch.export.export(Call(case), tuple(case.inputs), strict=False)
    converter = TorchConverter().add_exported_program(exported)
    program = converter.to_coreai()
    if not rule.of_complex:  # of complex numbers there are the same ops on the parts
        assert case.op not in program.stages["import"]
    block = program.module.graph("main").regions[0].block
    inputs = {
        name: prepare_input(value, argument.type, name)  # type: ignore[arg-type]
        for name, value, argument in zip(program.input_names(), case.inputs, block.args, strict=True)
    }
    for where, outputs in (("evaluator", program.run(inputs)), ("runtime", native.run(program.module, inputs))):
        numbered = {f"y{index}": outputs[name] for index, name in enumerate(program.output_names())}
        assert_agrees(case, numbered, where)

"""Examples of rules that are programs of several ops, exported and converted."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from patcomp import AIProgram, TorchConverter
from patcomp.errors import RuleError
from patcomp.evaluate.eager import random_tensor
from patcomp.patterns import Example, Rule, Stage
from patcomp.patterns.example_types import limits_of, parse_type
from patcomp.targets import Target


class Calling(torch.nn.Module):
    """The program of an example as a module, which is what `torch.export` takes."""

    def __init__(self, example: Example):
        super().__init__()
        assert example.program is not None
        self.function = example.program

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(torch, *tensors)


def example_inputs(example: Example) -> tuple[Any, ...]:
    """Inputs of the types of an example."""
    texts = [str(text) for text in example.args]
    return tuple(random_tensor(parse_type(text), limits_of(text), index) for index, text in enumerate(texts))


def convert_example(
    rule: Rule, example: Example, catalog: Sequence[ModuleType] = ()
) -> tuple[AIProgram, Calling, tuple[Any, ...]]:
    """The converted program of an example, the module that it is, and inputs for it.

    Args:
        rule: the rule; one of the stage `target` is converted for a target that has only this rule.
        example: one with a `program`.
        catalog: catalogs before patcomp's own.
    """
    inputs, module = example_inputs(example), Calling(example)
    try:
        exported = torch.export.export(module, inputs)
    except Exception as error:  # code of the rule's author
        reason = str(error).strip().split("\n")[0]
        raise RuleError(
            f"the program of an example of {rule.name} ({rule.source}) does not run: {type(error).__name__}: {reason}"
        ) from error
    converter = TorchConverter(catalog=catalog).add_exported_program(exported)
    target = Target(rule.name, rules=(rule.name,)) if rule.stage is Stage.TARGET else None
    return converter.to_coreai(target=target), module, inputs


def fired_in(program: AIProgram) -> set[str]:
    """The names of the rules that made something in a conversion."""
    return {name for report in program.reports for name, count in report.statistics.fired.items() if count}

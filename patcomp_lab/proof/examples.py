"""Examples of rules that are programs of several ops: exported, converted, and as pairs before and after the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from patcomp import AIProgram, TorchConverter
from patcomp.errors import RuleError
from patcomp.evaluate.eager import random_tensor, results_of
from patcomp.ir.module import IRModule
from patcomp.patterns import Example, Rule, RuleSet, Stage
from patcomp.patterns.example_types import limits_of, parse_type
from patcomp.rewrites import Options, run_pipeline
from patcomp.targets import Target
from patcomp_lab.proof.calls import compiled_inputs
from patcomp_lab.proof.counterexample import with_rule_in_front, without_rule
from patcomp_lab.proof.pairs import RulePair, RunInput, run_module


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


def _exported(rule: Rule, module: Calling, inputs: tuple[Any, ...]) -> Any:
    try:
        return torch.export.export(module, inputs)
    except Exception as error:  # code of the rule's author
        reason = str(error).strip().split("\n")[0]
        raise RuleError(
            f"the program of an example of {rule.name} ({rule.source}) does not run: {type(error).__name__}: {reason}"
        ) from error


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
    exported = _exported(rule, module, inputs)
    converter = TorchConverter(catalog=catalog).add_exported_program(exported)
    target = Target(rule.name, rules=(rule.name,)) if rule.stage is Stage.TARGET else None
    return converter.to_coreai(target=target), module, inputs


def fired_in(program: AIProgram) -> set[str]:
    """The names of the rules that made something in a conversion."""
    return {name for report in program.reports for name, count in report.statistics.fired.items() if count}


# ---- before and after the rule --------------------------------------------------------------------


@dataclass
class Converted(RulePair):
    """An example that is a program: PyTorch, or what is converted without the rule, and the converted program."""

    rule: Rule
    function: Any
    module: IRModule
    runs: Sequence[Mapping[str, RunInput]]
    source_ir: str
    rewritten_ir: str | None = None
    without: IRModule | None = None
    """The program that is converted without the rule, if the rule rewrites Core AI's ops."""

    @property
    def drawing(self) -> Any:  # type: ignore[override]
        return ExampleProgram(self.rule, {})

    def before(self, inputs: Mapping[str, Any]) -> list[Any]:
        if self.without is not None:
            return run_module(self.without, compiled_inputs(self.without, inputs))
        return results_of(self.function(*inputs.values()))

    def after(self, inputs: Mapping[str, Any]) -> list[Any]:
        return run_module(self.module, compiled_inputs(self.module, inputs))


@dataclass(frozen=True)
class ExampleProgram:
    """What an error says of the program of an example."""

    rule: Rule
    example: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "the example"


@dataclass
class ConvertedExample:
    """The example of a rule, converted."""

    pair: Converted
    types: list[str]
    """The types of its inputs as the example writes them."""
    before: IRModule
    """The program before the rule."""


def converted_example(rule: Rule, example: Example, catalog: RuleSet) -> ConvertedExample | None:
    """The example of a rule in PyTorch and converted, and the program in front of the rule; None if the rule does not
    fire in it."""
    types = [str(text) for text in example.args]
    inputs, module = example_inputs(example), Calling(example)
    imported = TorchConverter().add_exported_program(_exported(rule, module, inputs)).imported()
    rules = with_rule_in_front(catalog, rule)
    target = Target(rule.name, rules=(rule.name,)) if rule.stage is Stage.TARGET else None
    compilation = run_pipeline(imported.clone(), rules, Options(target=target))
    if not any(rule.name in report.statistics.fired for report in compilation.reports):
        return None
    before = imported.clone()
    run_pipeline(before, rules, Options(), only_before=rule.stage)
    names = [argument.name_hint or "" for argument in compilation.module.graph("main").regions[0].block.args]
    runs = [dict(zip(names, map(RunInput, types), strict=True))]
    without = None
    if rule.stage in (Stage.TARGET, Stage.OPTIMIZE):
        without = run_pipeline(imported.clone(), without_rule(rules, rule), Options()).module
    text = (without or imported).text(), compilation.module.text()
    pair = Converted(rule, module, compilation.module, runs, *text, without)
    return ConvertedExample(pair, types, before)

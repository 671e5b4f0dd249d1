"""A seed: a plausible rule with a mistake, and a witness, which is a program and inputs that show the mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Protocol

import torch

from patcomp import TorchConverter
from patcomp.errors import UnsupportedError
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.patterns import Context, Rewrite, Rule, RuleSet, Stage, run
from patcomp.patterns import rule as declare_rule
from patcomp_lab.proof.counterexample import agrees
from patcomp_lab.proof.examples import fired_in
from patterns_catalog import default_rules
from tests.catalog.cases import Case, build_case, compile_case, fired, make_case
from tests.catalog.recovering import Calling
from tests.helpers.programs import program


@dataclass(frozen=True)
class Outcome:
    """What a witness shows."""

    fired: bool
    """Whether the rule rewrote the witness."""
    expected: list[torch.Tensor]
    """The results of the source."""
    given: list[torch.Tensor]
    """The results of the rewritten program."""
    control: list[torch.Tensor] | None
    """The results of the same pipeline without the rule; None if the pipeline does not take the op without the rule,
    because a decomposition replaces the op on import."""


class Witness(Protocol):
    @property
    def is_dynamic(self) -> bool:
        """Whether dimensions of its inputs are dynamic."""
        ...

    def run(self, rule: Rule) -> Outcome:
        """Run the source, the rewritten program, and the program that is compiled without the rule."""
        ...


@dataclass(frozen=True)
class Seed:
    """A wrong rule."""

    rule: Rule
    wrong: str
    """What is wrong, in a sentence."""
    witness: Witness
    right_on_example: bool
    """Whether the rule computes the right numbers on its own example, so that the example hides the mistake."""

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def stage(self) -> Stage:
        return self.rule.stage


def seed(wrong: str, witness: Witness, *, right_on_example: bool = True) -> Callable[[Rule], Seed]:
    """Make a seed of a declared rule; arguments as for `Seed`."""
    return lambda rule: Seed(rule, wrong, witness, right_on_example)


def of_coreai(stage: str, example: Mapping[str, Any], **options: Any) -> Callable[[Callable[..., Rewrite]], Rule]:
    """Declare a rule of Core AI ops; arguments as for `rule`."""
    return declare_rule(stage=stage, source=coreai_namespace, into=coreai_namespace, example=example, **options)


def differ(rule: Rule, expected: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> bool:
    """Whether results differ: by more than rounding, or for an optimize rule in any bit that is not one of a NaN."""
    pairs = list(zip(expected, given, strict=True))
    if any(left.shape != right.shape for left, right in pairs):
        return True
    if rule.stage is not Stage.OPTIMIZE:
        return not all(agrees(left, right) for left, right in pairs)
    return not all(_same_bits(left, right) for left, right in pairs)


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if not torch.equal(left.isnan(), right.isnan()):
        return False
    numbers = ~left.isnan()
    return torch.equal(left[numbers], right[numbers]) and torch.equal(left[numbers].signbit(), right[numbers].signbit())


@dataclass(frozen=True)
class Ops:
    """A program of Core AI ops, to which the rule alone is applied."""

    types: Mapping[str, str]
    """The type of each input by name: `"2x?xf32"`."""
    body: Callable[..., Value]
    inputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The inputs by name; 1, 2, 3, ... for an input that is missing here and has no dynamic dimension."""

    @property
    def is_dynamic(self) -> bool:
        return any("?" in text for text in self.types.values())

    def run(self, rule: Rule) -> Outcome:
        before, after = (program(self.types, self.body) for _ in range(2))
        statistics = run(after.graph("main"), RuleSet([rule]), Context(after.blobs, coreai, strict=True))
        verify(after, runtime=False)
        inputs = {
            name: self.inputs[name] if name in self.inputs else counting(text) for name, text in self.types.items()
        }
        expected, given = (list(evaluate(module, dict(inputs)).values()) for module in (before, after))
        return Outcome(rule.name in statistics.fired, expected, given, expected)


def counting(text: str) -> torch.Tensor:
    """The float32 tensor 1, 2, 3, ... of a static type."""
    *sizes, _ = text.split("x")
    shape = [int(size) for size in sizes]
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape)


@dataclass(frozen=True)
class Call:
    """A call of one PyTorch op, compiled with the rule in front of the catalog, and compared with eager PyTorch."""

    op: str
    args: Sequence[Any]
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_dynamic(self) -> bool:
        return False

    def run(self, rule: Rule) -> Outcome:
        case = make_case(self.op, tuple(self.args), self.keywords)
        compiled = compile_case(case, default_rules().preceded_by([rule], override=True))
        given = _results(case, compiled.module)
        try:
            control = _results(case, compile_case(case).module)
        except UnsupportedError:
            control = None
        return Outcome(rule.name in fired(compiled), case.expected[: len(given)], given, control)


def _results(case: Case, module: Any) -> list[torch.Tensor]:
    names = [argument.name_hint for argument in build_case(case).graph("main").regions[0].block.args]
    return list(evaluate(module, dict(zip(map(str, names), case.inputs, strict=True))).values())


@dataclass(frozen=True)
class Function:
    """A function of tensors, exported and converted with the rule in front of the catalog."""

    function: Callable[..., Any]
    inputs: Sequence[torch.Tensor]
    sizes: Sequence[Any] | None = None
    """The dynamic dimensions of each tensor; all are static by default."""

    @property
    def is_dynamic(self) -> bool:
        return self.sizes is not None

    def run(self, rule: Rule) -> Outcome:
        module = Calling(self.function)
        shapes = None if self.sizes is None else (tuple(self.sizes),)
        exported = torch.export.export(module, tuple(self.inputs), dynamic_shapes=shapes)
        results, calls = [], []

        def decompose(*args: Any, **kwargs: Any) -> Any:
            calls.append(rule.name)
            return rule.function(*args, **kwargs)  # type: ignore[misc]

        used = replace(rule, function=wraps(rule.function)(decompose)) if rule.stage is Stage.DECOMPOSE else rule  # type: ignore[arg-type]
        for catalog in ([RuleSet([used])], []):
            converted = TorchConverter(catalog=catalog).add_exported_program(exported).to_coreai()
            given = converted.run(dict(zip(converted.input_names(), self.inputs, strict=True)))
            fired = rule.name in (*fired_in(converted), *calls)
            results.append((fired, [torch.as_tensor(value) for value in given.values()]))
        (took, given), (_, control) = results
        return Outcome(took, list(torch.utils._pytree.tree_leaves(module(*self.inputs))), given, control)

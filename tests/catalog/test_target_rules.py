"""Generated from the examples of every rule of the stage `target`: it fires, and the numbers are eager PyTorch's, on
the evaluator and on the runtime."""

from __future__ import annotations

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.patterns import Example, Rule
from patcomp.proof.examples import convert_example, fired_in
from patcomp.targets import TARGETS
from patterns_catalog import default_rules

RULES = list(default_rules().stage("target"))
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.name} {', '.join(map(str, example.args))}")
    for rule in RULES
    for example in rule.examples
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_an_example_and_a_target(rule: Rule) -> None:
    assert rule.is_declarative or all(example.program for example in rule.examples)
    assert rule.examples, "a rule without an example is not tested"
    assert any(rule.name in target.rules for target in TARGETS.values()) or rule.name in OPTIONAL


OPTIONAL: frozenset[str] = frozenset()
"""Rules that no target has by default."""


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example, native: Native) -> None:
    if example.program is None:
        return  # a declarative rule is tested on programs that are drawn from its pattern
    program, model, inputs = convert_example(rule, example)
    assert rule.name in fired_in(program)
    program.verify_against(model, inputs, backends=["evaluator"]).check()
    expected = model(*inputs)
    given = native.run(program.module, dict(zip(program.input_names(), inputs, strict=True)))
    for made, wanted in zip(given.values(), expected if isinstance(expected, tuple) else [expected], strict=True):
        torch.testing.assert_close(torch.from_numpy(made), wanted, rtol=1e-4, atol=1e-5)

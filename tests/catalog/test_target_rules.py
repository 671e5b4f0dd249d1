"""Generated from the examples of every rule of the stage `target`: it fires, and the numbers are eager PyTorch's, on
the evaluator and on the runtime."""

from __future__ import annotations

import pytest
import torch

from benchmarks.rounding import signal
from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.patterns import Example, Rule
from patcomp.targets import TARGETS
from patcomp_lab.proof.examination import examine
from patcomp_lab.proof.examples import convert_example, fired_in
from patterns_catalog import default_rules

RULES = list(default_rules().stage("target"))
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.name} {', '.join(map(str, example.args))}")
    for rule in RULES
    for example in rule.examples
    if not rule.is_drawn
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_an_example_and_a_target(rule: Rule) -> None:
    assert rule.is_drawn or all(example.program for example in rule.examples)
    assert rule.examples, "a rule without an example is not tested"
    assert any(target.takes(rule) for target in TARGETS.values()) or rule.name in OPTIONAL


OPTIONAL = frozenset({"gate and up in one product", "pointwise convolution as product", "silu by sigmoid"})
"""Rules that no target has by default."""

EXACT = frozenset(
    {
        "argmax by comparison",
        "biases of slices together",
        "gather of runs as slices",
        "halves to even numbers",
        "pad as concat",
        "rms_norm of query and key together",
        "rope of query and key together",
        "transpose before rms_norm",
        "transposes of slices together",
        "views of slices together",
    }
)
"""Rules that change no bit of any result."""

APPROXIMATE = {"gelu by sigmoid": 85.0}
"""Rules that use another formula, and the signal that their results keep, in dB."""


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.is_drawn], ids=lambda rule: rule.name)
def test_declared_rule(rule: Rule) -> None:
    """Programs that are drawn from its pattern, and near ones that it must not take."""
    for check in examine(rule, default_rules(), programs=2):
        assert check.failure is None, f"{check.name}: {check.failure}"
        assert check.runs or check.unspecified, check.name


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example, native: Native) -> None:
    assert example.program is not None
    program, model, inputs = convert_example(rule, example)
    assert rule.name in fired_in(program)
    expected = model(*inputs)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    given = dict(zip(program.input_names(), inputs, strict=True))
    if rule.name not in APPROXIMATE:
        program.verify_against(model, inputs, backends=["evaluator"]).check()
    results = [program.run(given), native.run(program.module, given)]
    if rule.name in EXACT:
        plain = TorchConverter().add_exported_program(torch.export.export(model, inputs)).to_coreai()
        for outputs, before in zip(results, (plain.run(given), native.run(plain.module, given)), strict=True):
            for name in program.output_names():
                assert torch.equal(torch.as_tensor(outputs[name]), torch.as_tensor(before[name]))
    for outputs in results:
        for made, right in zip(map(outputs.get, program.output_names()), wanted, strict=True):
            assert signal(torch.as_tensor(made), right) >= APPROXIMATE.get(rule.name, 110.0)

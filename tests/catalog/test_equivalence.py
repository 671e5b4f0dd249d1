"""Every declarative rule computes what it replaces: programs drawn from its declaration, in numbers.

PyTorch computes the source, op by op; the rewritten program runs on the evaluator and on the Core AI runtime.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from patcomp.emit.native import Native
from patcomp.patterns import Rule
from patcomp.proof.drawing import draw
from patcomp.proof.equivalence import Runner, attempt, check_equivalence, find_trial
from patcomp.proof.selftest import Variant, variants
from patterns_catalog import default_rules

pytest.importorskip("transformers.integrations.moe", reason="defines an operator that a rule knows")

CATALOG = default_rules()
RULES = [pytest.param(rule, id=rule.name) for rule in CATALOG.declarative()]


def _few(known: Sequence[Variant], count: int) -> Sequence[Variant]:
    """Variants evenly spread over all."""
    return known[:: -(-len(known) // count)]


def _drawn(rule: Rule, count: int) -> Callable[[], None]:
    """A test of drawn programs, in the alternatives and operand orders, sizes, types and numbers that hypothesis
    chooses."""
    known = variants(rule)

    @settings(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def agrees(data: Any) -> None:
        def choose(options: Sequence[Any]) -> Any:
            return options[data.draw(st.integers(0, len(options) - 1))]

        trial = attempt(draw(rule, choose(known), choose), CATALOG, choose(range(1000)))
        assume(trial is not None)
        assert trial is not None
        trial.check(CATALOG)

    return agrees


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", RULES)
def test_agrees_with_eager(rule: Rule) -> None:
    """At the example, in some alternatives and operand orders, and at drawn programs."""
    assert check_equivalence(rule, CATALOG, draws=6) >= 3
    _drawn(rule, 3)()


def _on_runtime(native: Native) -> Runner:
    return lambda module, inputs: native.run(module, inputs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", RULES)
def test_agrees_on_the_runtime(rule: Rule, native: Native) -> None:
    check_equivalence(rule, CATALOG, draws=2, seed=1, runtime=_on_runtime(native))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_variant_and_many_draws(rule: Rule, native: Native) -> None:
    """The example, or such a program of other sizes, in every variant that it fits; and many drawn ones."""

    choose = random.Random(0).choice
    known = variants(rule)
    trials = [find_trial(rule, CATALOG, choose, [variant], ()) for variant in known]
    for trial in trials:
        if trial is not None:
            trial.check(CATALOG)
    assert sum(trial is not None for trial in trials) >= len(known) / 4
    _drawn(rule, 50)()
    check_equivalence(rule, CATALOG, draws=8, seed=2, runtime=_on_runtime(native))

"""The proofs of rules on symbols: what they prove, what they refute, and the mistakes that they found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.evaluate import evaluate
from patcomp.ir import coreai
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Const, Context, Rewrite, Rule, RuleSet, rule, run
from patcomp.proof.verdict import Strength, prove
from patcomp.questions.reach import namespace_of
from patterns_catalog import default_rules
from tests.helpers.programs import program

RULES = default_rules()
PROGRAMS = 3


@pytest.mark.parametrize("found", [r for r in RULES.stage("optimize") if r.is_declarative], ids=lambda r: r.name)
def test_each_optimize_rule_with_a_pattern_is_proved(found: Rule) -> None:
    verdict = prove(found, RULES, programs=PROGRAMS)
    assert verdict.strength.is_proof, verdict


@rule(stage="optimize", source=coreai_namespace, target=coreai_namespace,
      example={"x": "2x2x2xf32", "p": [1, 2, 0], "q": [1, 2, 0]})  # fmt: skip
def swapped_order(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), q) -> transpose(x, q[p]), which should be p[q]: right where p and q are equal"
    y = a.transpose(a.transpose(x, p), q)
    return Rewrite(y, to=c.transpose(x, q.values[p.values], result_type=y.type))


@rule(stage="optimize", source=coreai_namespace, target=coreai_namespace, example={"x": "2x3xf32"})
def positive_zero(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x + 0.0 -> x, which loses the sign of a zero"
    y = x + 0.0
    return Rewrite(y, to=x, where=[y.type == x.type])


@pytest.mark.parametrize(("wrong", "says"), [(swapped_order, "something else"), (positive_zero, "the sign of a zero")])
def test_a_wrong_rule_is_refuted_with_programs_and_numbers(wrong: Rule, says: str) -> None:
    verdict = prove(wrong, RULES, programs=24)
    assert verdict.strength is Strength.REFUTED
    text = str(verdict.counterexample)
    assert all(part in text for part in (says, "-- source", "-- rewritten", "-- expected y0"))


def test_a_rule_that_rounds_otherwise_is_proved_over_the_reals_only() -> None:
    assert prove(RULES["rms_norm"], RULES, programs=2).strength is Strength.REALS


def test_a_scalar_lemma_is_named() -> None:
    verdict = prove(RULES["times_one"], RULES, programs=2)
    assert (verdict.strength, verdict.reason) == (Strength.LEMMA, "x * 1 = x")


@pytest.mark.parametrize("name", ["einsum_factor", "rope of some dimensions"])
def test_rules_take_or_refuse_axes_and_ends_that_count_from_the_end(name: str) -> None:
    assert prove(RULES[name], RULES, programs=6).strength.is_proof


@pytest.mark.parametrize("rows", [3, 4, 5])
def test_slices_of_an_open_size_whose_start_may_lie_before_the_first_row_are_not_merged(rows: int) -> None:
    def body(x: Value) -> Value:
        part = coreai.slice_(x, [-4, 0], [2**31 - 1] * 2, [2, 1], result_type=tensor((2, 1), "f32"))
        return coreai.slice_(part, [0, 0], [1, 2**31 - 1], [1, 1], result_type=tensor((1, 1), "f32"))

    source = program({"x": "?x1xf32"}, body)
    after = source.clone()
    run(
        after.graph("main"), RuleSet([RULES["merge_slices"]]), Context(after.blobs, namespace_of(RULES["merge_slices"]))
    )
    inputs = {"x": torch.from_numpy(np.arange(1.0, rows + 1, dtype=np.float32)[:, None])}
    for name, value in evaluate(source, dict(inputs)).items():
        assert torch.equal(value, evaluate(after, dict(inputs))[name])

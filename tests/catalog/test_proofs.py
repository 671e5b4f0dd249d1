"""The proofs of rules on symbols: what they prove, what they refute, and the mistakes that they found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Const, Context, Rewrite, Rule, RuleSet, rule, run
from patcomp.questions.reach import namespace_of
from patcomp_lab.proof.verdict import Strength, prove_rule
from patterns_catalog import default_rules
from tests.helpers.programs import program

pytest.importorskip("transformers.integrations.moe", reason="defines an operator that a rule knows")

RULES = default_rules()


@pytest.mark.parametrize("found", RULES.drawn(), ids=lambda rule: rule.name)
def test_every_declarative_rule_is_proved(found: Rule) -> None:
    """On few programs of each kind, so that all take less than a minute."""
    verdict = prove_rule(found, RULES, programs=1)
    assert verdict.strength.is_proof, verdict


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace,
      example={"x": "2x2x2xf32", "p": [1, 2, 0], "q": [1, 2, 0]})  # fmt: skip
def swapped_order(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), q) -> transpose(x, q[p]), which should be p[q]: right where p and q are equal"
    y = a.transpose(a.transpose(x, p), q)
    return Rewrite(y, to=c.transpose(x, q.values[p.values], result_type=y.type))


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32"})
def positive_zero(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x + 0.0 -> x, which loses the sign of a zero"
    y = x + 0.0
    return Rewrite(y, to=x, where=[y.type == x.type])


@pytest.mark.parametrize(("wrong", "says"), [(swapped_order, "something else"), (positive_zero, "the sign of a zero")])
def test_a_wrong_rule_is_refuted_with_programs_and_numbers(wrong: Rule, says: str) -> None:
    verdict = prove_rule(wrong, RULES, programs=24)
    assert verdict.strength is Strength.REFUTED
    text = str(verdict.counterexample)
    assert all(part in text for part in (says, "-- source", "-- rewritten", "-- expected y0"))


def test_a_rule_that_rounds_otherwise_is_proved_over_the_reals_only() -> None:
    assert prove_rule(RULES["rms_norm"], RULES, programs=2).strength is Strength.REALS


def test_a_scalar_lemma_is_named() -> None:
    verdict = prove_rule(RULES["times_one"], RULES, programs=2)
    assert (verdict.strength, verdict.reason) == (Strength.LEMMA, "x * 1 = x")


@pytest.mark.parametrize("name", ["einsum_factor", "rope of some dimensions"])
def test_rules_take_or_refuse_axes_and_ends_that_count_from_the_end(name: str) -> None:
    assert prove_rule(RULES[name], RULES, programs=3).strength.is_proof


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


# ---- what a verdict says ---------------------------------------------------------------------------


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32"})
def twice_the_magnitude(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "abs(abs(x)) -> abs(x)"
    y = a.abs(a.abs(x))
    return Rewrite(y, to=c.abs(x))


def test_a_rule_whose_symbols_differ_to_the_bit_is_called_equal_over_the_reals() -> None:
    verdict = prove_rule(twice_the_magnitude, RULES, programs=2)
    assert verdict.strength is Strength.REALS
    assert "equal over the reals" in str(verdict)


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32[0,9]"})
def back_from_integers(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "a cast to integers and back -> round(x - 0.5), which is wrong for whole numbers"
    y = a.cast(a.cast(x, "si32"), "f32")
    return Rewrite(y, to=c.round(c.broadcasting_sub(x, 0.5)), where=[y.type == x.type])


def test_numbers_refute_what_symbols_do_not_reach() -> None:
    verdict = prove_rule(back_from_integers, RULES, programs=2)
    assert verdict.strength is Strength.REFUTED
    assert "-- actual y0" in str(verdict.counterexample)


@pytest.mark.parametrize("name", ["einsum_product", "product_of_reshape", "normalize repeat"])
def test_mistakes_that_the_proofs_found_are_mended(name: str) -> None:
    "axes that count from the end; a reshape that another one undoes; no repetitions of an open size"
    assert prove_rule(RULES[name], RULES, programs=3).strength.is_proof

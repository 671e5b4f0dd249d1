"""The proofs refute the wrong rules that were written without knowledge of them."""

from __future__ import annotations

import pytest

from patcomp.patterns import Rule
from patcomp_lab.proof.verdict import Strength, prove_rule
from patterns_catalog import default_rules
from tests.proof_seeds.right import RIGHT
from tests.proof_seeds.seeds import Seed
from tests.proof_seeds.table import SEEDS

CATALOG = default_rules()

FEW = 2
"""With how many programs of each kind the right rules are proved, as the rules of the catalog are."""

NOT_REFUTED: dict[str, str] = {}
"""The seeds that are not refuted, each with the reason."""

SAMPLE = (
    "plus_either_zero", "integers_there_and_back", "slice_of_slice_without_step", "parts_in_any_order",
    "broadcast_to_same_type", "size_of_equal_parts", "mean_of_unknown_count", "halves_as_neighbours",
    "softmax_without_maximum", "padding as concat", "tril by positions", "half_of_sum", "length_norm_in_half",
    "argmax from the end", "at_most_as_less", "transposed_twice", "reshaped_to_same_type", "gelu, always exact",
    "mean of squares", "shifted_softmax", "norm_without_eps",
)  # fmt: skip
"""A seed of each kind that CI refutes; the slow test refutes all."""


def _is_refuted(seed: Seed) -> bool:
    verdict = prove_rule(seed.rule, CATALOG.preceded_by([seed.rule], override=True))
    if verdict.strength is not Strength.REFUTED:
        return False
    text = str(verdict.counterexample)
    assert seed.name in text
    assert "-- source" in text or "drawn:" in text
    return True


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_refuted(name: str) -> None:
    assert _is_refuted(SEEDS[name])


@pytest.mark.slow
def test_all_but_the_listed_ones_are_refuted() -> None:
    missed = {name for name, seed in SEEDS.items() if not _is_refuted(seed)}
    assert missed == set(NOT_REFUTED)
    assert len(SEEDS) - len(missed) >= 119


@pytest.mark.parametrize("name", ["there_and_back", "at_most_turned_around", "transpose_undone", "shape_of_known_sum"])
def test_a_sample_of_right_rules_is_proved(name: str) -> None:
    assert prove_rule(RIGHT[name], CATALOG, programs=FEW).strength.is_proof


@pytest.mark.slow
@pytest.mark.parametrize("rule", RIGHT.values(), ids=RIGHT)
def test_a_right_rule_is_not_refuted(rule: Rule) -> None:
    verdict = prove_rule(rule, CATALOG.preceded_by([rule], override=True), programs=FEW)
    assert verdict.strength.is_proof, verdict

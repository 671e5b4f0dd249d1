"""The proofs refute the wrong rules that were written without knowledge of them."""

from __future__ import annotations

import pytest

from patcomp.proof.verdict import Strength, prove
from patterns_catalog import default_rules
from tests.proof_seeds.seeds import Seed
from tests.proof_seeds.table import SEEDS

CATALOG = default_rules()

NOT_REFUTED: dict[str, str] = {}
"""The seeds that are not refuted, each with the reason."""

SAMPLE = (
    "plus_either_zero", "integers_there_and_back", "slice_of_slice_without_step", "parts_in_any_order",
    "broadcast_to_same_type", "size_of_equal_parts", "mean_of_unknown_count", "halves_as_neighbours",
    "softmax_without_maximum", "padding as concat", "tril by positions",
)  # fmt: skip
"""A seed of each kind that CI refutes; the slow test refutes all."""


def _is_refuted(seed: Seed) -> bool:
    verdict = prove(seed.rule, CATALOG.preceded_by([seed.rule], override=True))
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
    assert len(SEEDS) - len(missed) >= 57

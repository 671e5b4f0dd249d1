"""Generated from the `examples` of every decomposition: taken apart on import, the numbers are eager's."""

from __future__ import annotations

import pytest

from patcomp.emit.native import Native
from patcomp.patterns import Example, Rule, Stage
from patterns_catalog import all_rules, default_decompositions
from tests.catalog.exported import check_parts, decomposition_examples


def test_every_decomposition_has_an_example_and_a_sentence() -> None:
    found = all_rules().stage(Stage.DECOMPOSE)
    assert [rule.name for rule in found if not (rule.examples and rule.doc)] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rule", "example"), decomposition_examples(default_decompositions()))
def test_the_parts_agree(rule: Rule, example: Example, native: Native) -> None:
    check_parts(rule, example, native)

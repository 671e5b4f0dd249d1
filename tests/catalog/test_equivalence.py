"""Every declarative rule computes what it replaces on the Core AI runtime: its example in some of its variants."""

from __future__ import annotations

import pytest

from patcomp.emit.native import Native
from patcomp.patterns import Rule
from patcomp_lab.proof.examination import check_compiled
from patcomp_lab.proof.programs import Programs
from patterns_catalog import default_rules

pytest.importorskip("transformers.integrations.moe", reason="defines an operator that a rule knows")

CATALOG = default_rules()
RULES = [pytest.param(rule, id=rule.name) for rule in CATALOG.drawn()]


def _compare(rule: Rule, native: Native, variants: int) -> None:
    listed = Programs(rule, CATALOG, variants)
    pairs = [pair for drawing in listed.examples() if (pair := listed.pair_of(drawing)) is not None]
    assert pairs
    for pair in pairs:
        check_compiled(pair, CATALOG)
        check_compiled(pair, CATALOG, native.run, "runtime")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", RULES)
def test_agrees_on_the_runtime(rule: Rule, native: Native) -> None:
    _compare(rule, native, 2)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_variant_agrees_on_the_runtime(rule: Rule, native: Native) -> None:
    _compare(rule, native, 256)

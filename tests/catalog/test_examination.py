"""What `patcomp rule test` tests of a user's rules, of those of the catalog: no counterexample is found.

A few rules of each kind are tested always, all of them with `-m slow`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from patcomp import AIProgram
from patcomp.patterns import Rule, Stage
from patcomp_lab.proof.converted import converted_checks
from patcomp_lab.proof.examination import examine
from patterns_catalog import all_rules, default_rules
from tests.helpers.torchvision_ops import know_the_shape_of_nms

pytest.importorskip("transformers.integrations.moe", reason="defines an operator that a rule knows")

CATALOG = default_rules()
RULES = {rule.name: rule for rule in all_rules()}
SAMPLE = (
    "decompose hypot", "decompose complex rsub", "decompose complex asin", "decompose ldexp", "decompose cdist",
    "layer_norm", "log_softmax written out", "normalize eq", "embedding_bag", "sort", "transpose_of_transpose",
)  # fmt: skip
"""A decomposition of each sort, composites made of one op and recovered, a normalization, lowerings, an identity."""


def _assert_right(rule: Rule) -> None:
    checks = examine(rule, CATALOG, programs=2)
    assert not [f"{check.name}: {check.failure}" for check in checks if check.failure is not None]
    assert sum(check.runs for check in checks) > 0 or rule.stage is not Stage.DECOMPOSE


@pytest.mark.parametrize("name", SAMPLE)
def test_nothing_is_found(name: str) -> None:
    _assert_right(RULES[name])


def test_a_rule_that_leaves_something_open_says_why() -> None:
    reasons = {name: rule.unspecified for name, rule in RULES.items() if rule.unspecified}
    assert "NaN" in reasons["scaled_dot_product_attention"]
    assert len(reasons) < len(RULES) / 6


def test_a_rule_that_is_wrong_in_the_program_of_its_example_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RULES["gather_from_the_front"]
    assert [check.failure for check in converted_checks(rule, [])] == [None]
    monkeypatch.setattr(AIProgram, "verify_against", lambda *_, **options: SimpleNamespace(passed=False))
    (check,) = converted_checks(rule, [])
    assert check.runs == 0
    assert "gather_from_the_front" in str(check.failure)
    assert "is wrong in its example" in str(check.failure)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_nothing_is_found_in_any_rule(name: str) -> None:
    rule = RULES[name]
    if name == "nms":
        know_the_shape_of_nms()
    _assert_right(rule)
    assert not [f"{check.name}: {check.failure}" for check in converted_checks(rule, []) if check.failure is not None]

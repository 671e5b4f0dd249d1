"""A rule that declares an approximation has its bound measured; a rule that declares none must not be one."""

from __future__ import annotations

import pytest

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.errors import RuleError
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Capture, Rewrite, Rule, rule
from patcomp_lab.proof.verdict import Strength, prove_rule
from patterns_catalog import default_rules

CATALOG = default_rules()


def _declared(bound: float | None, stage: str = "target") -> Rule:
    @rule(stage=stage, source=coreai_namespace, into=coreai_namespace, example={"x": "2x64xf32"}, approximation=bound)
    def hard_sigmoid(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
        "sigmoid(x) -> clamp(x / 6 + 1/2, 0, 1), which is up to 0.07 away"
        line = c.broadcasting_add(c.broadcasting_mul(x, 1 / 6), 0.5)
        return Rewrite(a.sigmoid(x), to=c.broadcasting_minimum(c.broadcasting_maximum(line, 0.0), 1.0))

    return hard_sigmoid


def test_a_bound_is_measured_on_all_numbers() -> None:
    verdict = prove_rule(_declared(0.12), CATALOG, programs=1)
    assert verdict.strength is Strength.APPROXIMATION
    assert verdict.strength.is_proof
    assert verdict.reason.startswith("0.12 is declared, 0.069 measured")
    count = int(verdict.reason.rpartition(" on ")[2].split()[0].replace(",", ""))
    assert count > 120_000  # the finite numbers of float16 and bfloat16


@pytest.mark.parametrize("bound", [None, 0.01])
def test_a_larger_difference_is_wrong(bound: float | None) -> None:
    verdict = prove_rule(_declared(bound), CATALOG, programs=1)
    assert verdict.strength is Strength.REFUTED
    assert verdict.counterexample is not None


@pytest.mark.parametrize(
    ("bound", "stage", "message"),
    [
        (0.0, "target", "the largest difference"),
        (True, "target", "the largest difference"),
        (float("inf"), "target", "the largest difference"),
        (1e-3, "optimize", "keeps every bit"),
    ],
)
def test_a_declaration_is_checked(bound: float, stage: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        _declared(bound, stage)

"""A rule that only rounds in another way is near; one that is right over the reals and loses digits is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Capture, Rewrite, Rule, rule
from patcomp_lab.proof import examination
from patcomp_lab.proof.examination import examine
from patcomp_lab.proof.programs import Programs
from patcomp_lab.proof.rounding import ROUNDING_LIMIT, units_apart
from patcomp_lab.proof.table import new_row
from patcomp_lab.proof.verdict import Strength, Verdict, prove_rule
from patterns_catalog import all_rules, default_rules

CATALOG = default_rules()
EXAMPLE = {"x": "2x8xf32", "y": "2x8xf32", "z": "2x8xf32"}


@rule(stage="normalize", into=aten_namespace, example=EXAMPLE)
def sum_in_another_order(a: AtenSource, c: AtenTarget, x: Capture, y: Capture, z: Capture) -> Rewrite:
    "(x + y) - z -> x + (y - z)"
    return Rewrite((x + y) - z, to=c.add(x, c.sub(y, z)))


def _mean(a: Any, x: Any) -> Any:
    return a.op("mean.dim", x, dim=[1], keepdim=True, dtype=None)


@rule(stage="normalize", into=aten_namespace, example={"x": "2x8xf32"})
def variance_of_squares(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "mean((x - mean(x)) ** 2) -> mean(x * x) - mean(x) * mean(x)"
    apart = x - _mean(a, x)
    mean = _mean(c, x)
    return Rewrite(_mean(a, apart * apart), to=c.sub(_mean(c, c.mul(x, x)), c.mul(mean, mean)))


@rule(stage="normalize", into=aten_namespace, example={"x": "2x8xf32"})
def variance_of_distances(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "mean(x * x) - mean(x) * mean(x) -> mean((x - mean(x)) ** 2)"
    mean = _mean(a, x)
    apart = c.sub(x, _mean(c, x))
    return Rewrite(_mean(a, x * x) - mean * mean, to=_mean(c, c.mul(apart, apart)))


def _units(rule: Rule) -> float | None:
    listed = Programs(rule, CATALOG, 1)
    pair = listed.pair_of(listed.examples()[0])
    assert pair is not None
    return units_apart(pair)


def test_another_order_of_a_sum_is_near() -> None:
    """Also where large numbers cancel, which takes digits from every order."""
    verdict = prove_rule(sum_in_another_order, CATALOG, programs=1)
    assert verdict.strength is Strength.REALS
    assert verdict.ulps is not None
    assert 0.1 < verdict.ulps < 4
    said = f"at most {verdict.ulps:.1f} units in the last place apart where a search looked"
    assert said in str(verdict)
    assert new_row(all_rules()["rms_norm"], replace(verdict, rule="rms_norm")).remark == said
    assert _units(sum_in_another_order) == _units(sum_in_another_order)


def test_a_formula_that_loses_digits_is_far_and_the_stable_one_is_not() -> None:
    lost, kept = _units(variance_of_squares), _units(variance_of_distances)
    assert lost is not None
    assert lost > 2 * ROUNDING_LIMIT
    assert kept is not None
    assert kept < ROUNDING_LIMIT / 4


def test_a_rule_that_loses_digits_is_a_finding(monkeypatch: Any) -> None:
    def found(ulps: float | None) -> str:
        verdict = Verdict("", Strength.REALS, ulps=ulps)
        monkeypatch.setattr(examination, "prove_rule", lambda *_, **__: verdict)
        (check,) = [check for check in examine(sum_in_another_order, CATALOG) if check.name == "proof"]
        return str(check.failure or "")

    assert "loses digits" in found(_units(variance_of_squares))
    assert not found(_units(sum_in_another_order))
    assert not found(None)

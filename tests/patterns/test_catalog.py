"""Sets of rules: collecting, filtering, composing."""

from __future__ import annotations

from types import ModuleType

import pytest

from patcomp.errors import RuleError
from patcomp.patterns import Rewrite, Rule, RuleSet, Stage, collect, op_rule, run
from tests.patterns.graphs import Graph, declare


def _rule(name: str, **options) -> Rule:
    return declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name=name, **options)


def _module(name: str, **members) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module


@op_rule("optimize", "coreai.exp")
def procedural(op, c):
    return None


def test_collect_keeps_the_declared_order_and_counts_an_import_once():
    one, two, three = _rule("one"), _rule("two", stage="lower"), _rule("three")
    rules = collect(_module("first", b=one, a=two, number=3), _module("second", c=one, d=[three, procedural]))
    assert [rule.name for rule in rules] == ["one", "two", "three", "procedural"]
    assert [rule.name for rule in rules.stage("recover")] == ["one", "three"]
    assert [rule.name for rule in rules.without("one", "two")] == ["three", "procedural"]
    assert rules.procedural() == [procedural]
    assert [rule.name for rule in rules.declarative()] == ["one", "two", "three"]
    assert "two" in rules
    assert rules["two"] is two


def test_two_rules_of_one_name_are_an_error():
    with pytest.raises(RuleError, match=r"two rules are called same: patterns/test_catalog.py:\d+ and "):
        collect(_module("first", a=_rule("same")), _module("second", a=_rule("same")))


def test_a_missing_name_lists_the_others():
    rules = RuleSet([_rule("one"), _rule("two")])
    with pytest.raises(KeyError, match="no rule is called 'three'; there are one, two"):
        rules["three"]
    with pytest.raises(KeyError):
        rules.without("three")


def test_rules_in_front_are_tried_first():
    ours, theirs = _rule("ours"), _rule("theirs")

    def fired(rules: RuleSet) -> dict[str, int]:
        g = Graph()
        g.use(g.exp(g.inputs[0]))
        return run(g.block, rules).fired

    assert fired(RuleSet([ours, theirs])) == {"ours": 1}
    assert fired(RuleSet([ours]).preceded_by([theirs])) == {"theirs": 1}
    assert fired(RuleSet([ours, _rule("urgent", priority=1)])) == {"urgent": 1}


def test_an_override_must_be_wished():
    ours, replacement = _rule("norm"), _rule("norm")
    with pytest.raises(RuleError, match="two rules are called norm"):
        RuleSet([ours]).preceded_by([replacement])
    assert RuleSet([ours]).preceded_by([replacement], override=True)["norm"] is replacement


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("lowwer", "no stage 'lowwer' runs rules; did you mean 'lower'? the stages with rules are normalize, recover"),
        (
            "outline",
            "no stage 'outline' runs rules; the stages with rules are normalize, recover, lower, target, optimize",
        ),
        ("decompose", "the stage 'decompose' runs decompositions only; declare the rule with @decomposition"),
    ],
)
def test_a_stage_that_does_not_run_the_rule_is_refused_when_declared(stage: str, message: str):
    for declared in (lambda: _rule("mine", stage=stage), lambda: op_rule(stage, "aten.sin", name="mine")(len_of)):
        with pytest.raises(RuleError) as caught:
            declared()
        assert str(caught.value).startswith("rule mine (patterns/test_catalog.py:")
        assert message in str(caught.value)


def len_of(op, c):
    return None


def test_the_stage_of_a_rule_is_the_enumeration():
    assert _rule("mine", stage="normalize").stage is Stage.NORMALIZE
    assert procedural.stage is Stage.OPTIMIZE

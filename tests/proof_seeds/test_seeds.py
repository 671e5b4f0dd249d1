"""Every seed is a valid rule that fires on its example, and its witness shows that the rule is wrong."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from patcomp.authoring import AtenSource, AtenTarget, Coreai, CoreaiSource, CoreaiTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Const, OpView, Rewrite, Rule, RuleSet, lowering, rule
from patcomp_lab.proof.counterexample import WrongRuleError
from patcomp_lab.proof.examination import check_compiled
from patcomp_lab.proof.examples import convert_example, fired_in
from patcomp_lab.proof.programs import Programs
from patterns_catalog import default_rules
from tests.proof_seeds.seeds import Seed, Witness, differ, of_coreai
from tests.proof_seeds.table import SEEDS

CATALOG = default_rules()
EACH = pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)


def test_the_table() -> None:
    stages = Counter(str(seed.stage) for seed in SEEDS.values())
    assert stages == {"optimize": 43, "normalize": 40, "recover": 10, "target": 8, "lower": 15, "decompose": 6}
    assert not set(SEEDS) & {rule.name for rule in CATALOG}
    assert sum(seed.right_on_example for seed in SEEDS.values()) >= 100
    assert sum(seed.witness.is_dynamic for seed in SEEDS.values()) == 17
    assert sum(not seed.rule.is_declarative or seed.witness.is_dynamic for seed in SEEDS.values()) >= 20


def _is_right_on_example(rule: Rule) -> bool:
    """Whether the numbers are right on the first example of a rule, on which the rule must fire."""
    (example, *_) = rule.examples
    if example.program is not None:
        program, model, inputs = convert_example(rule, example, [RuleSet([rule])])
        assert rule.name in fired_in(program)
        return program.verify_against(model, inputs, backends=["evaluator"]).passed
    listed = Programs(rule, CATALOG, 1)
    pair = listed.pair_of(listed.examples()[0])
    assert pair is not None, "the rule does not fire on its example"
    try:
        check_compiled(pair, CATALOG)
    except WrongRuleError:
        return False
    return True


@EACH
def test_fires_on_its_example(seed: Seed) -> None:
    assert seed.wrong
    assert seed.rule.doc
    assert _is_right_on_example(seed.rule) == seed.right_on_example


@EACH
def test_the_witness_shows_the_mistake(seed: Seed) -> None:
    outcome = seed.witness.run(seed.rule)
    assert outcome.fired
    assert differ(seed.rule, outcome.expected, outcome.given)
    assert outcome.control is None or not differ(seed.rule, outcome.expected, outcome.control)


# ---- a right rule has no witness -------------------------------------------------------------------


@of_coreai("optimize", {"x": "2x3x4xf32", "p": [0, 2, 1], "q": [0, 2, 1]})
def transposes(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    y = a.transpose(a.escaping(a.transpose(x, p)), q)
    return Rewrite(y, to=c.transpose(x, p.values[q.values], result_type=y.type))


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32", "axis": 1})
def mean_by_its_size(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    total = c.op("sum.dim_IntList", x, dim=[axis], keepdim=True, dtype=None)
    mean = a.op("mean.dim", x, dim=[axis], keepdim=True, dtype=None)
    return Rewrite(mean, to=c.div(total, x.shape[axis]))


@lowering("aten.maximum", name="largest")
def largest(op: OpView, c: Coreai) -> Value:
    return c.broadcasting_maximum(op["self"], op.other)


RIGHT: list[tuple[Rule, Witness]] = [
    (transposes, SEEDS["transposes_composed_backwards"].witness),
    (mean_by_its_size, SEEDS["mean_by_last_size"].witness),
    (largest, SEEDS["maximum by comparison"].witness),
]


@pytest.mark.parametrize(("right", "witness"), RIGHT, ids=[right.name for right, _ in RIGHT])
def test_a_right_rule_passes_the_witness(right: Rule, witness: Witness) -> None:
    outcome = witness.run(right)
    assert outcome.fired
    assert not differ(right, outcome.expected, outcome.given)


@pytest.mark.parametrize(("given", "differs"), [(0.0, False), (-0.0, True), (torch.nan, True), (1e-30, True)])
def test_an_optimize_rule_must_keep_every_bit(given: float, differs: bool) -> None:
    rows = [torch.tensor([number, torch.nan]) for number in (0.0, given)]
    assert differ(transposes, rows[:1], rows[1:]) == differs

"""Every rule matches or refuses tensors of other ranks and lists of other lengths; none raises an exception.

A sample runs always; `-m slow` runs all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from patcomp.patterns import Rule, Stage
from patcomp.patterns.aspects import RANKS
from patcomp.proof.equivalence import rank_trials
from patcomp.proof.op_equivalence import attempt_op, check_decomposition, op_drawings
from patterns_catalog import default_decompositions, default_rules

pytest.importorskip("transformers.integrations.moe", reason="defines an operator that a rule knows")

CATALOG = default_rules()
OF_OPS = [
    rule
    for rule in [*CATALOG.procedural(), *default_decompositions()]
    if any(example.program is None for example in rule.examples) and RANKS not in rule.unspecified
]


def _parameters(rules: Iterable[Rule]) -> list[object]:
    """Test parameters for rules, all but every eighth of them slow."""
    slow = [pytest.mark.slow]
    return [pytest.param(rule, id=rule.name, marks=slow if place % 8 else []) for place, rule in enumerate(rules)]


@pytest.mark.parametrize("rule", _parameters(CATALOG.declarative()))
def test_patterns(rule: Rule) -> None:
    for trial in rank_trials(rule, CATALOG, random.Random(0).choice, 1):
        trial.check(CATALOG)


@pytest.mark.parametrize("rule", _parameters(OF_OPS))
def test_functions(rule: Rule) -> None:
    first = next(example for example in rule.examples if example.program is None)
    for drawing in op_drawings(replace(rule, examples=(first,))):
        if drawing.aspect != RANKS:
            continue
        if rule.stage is Stage.IMPORT:
            check_decomposition(drawing)
        elif (trial := attempt_op(drawing, CATALOG)) is not None:
            trial.check(CATALOG)

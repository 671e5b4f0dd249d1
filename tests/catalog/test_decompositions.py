"""Generated from the `examples` of every decomposition: taken apart on import, the numbers are eager's."""

from __future__ import annotations

import pytest

from patcomp.emit.native import Native
from patcomp.patterns import Example, Rule, Stage
from patterns_catalog import default_decompositions
from tests.catalog.cases import make_case
from tests.catalog.exported import check, staged

EXAMPLES = [
    pytest.param(
        rule, example, id=f"{example.op or rule.ops[0]}({', '.join(map(str, example.args))})",
        marks=[pytest.mark.slow] if place > 1 else [],
    )
    for rule in default_decompositions()
    if rule.stage is Stage.IMPORT
    for place, example in enumerate(rule.examples)
]  # fmt: skip
"""CI runs the first two of each rule."""


def test_every_decomposition_has_an_example_and_a_sentence() -> None:
    found = [rule for rule in default_decompositions() if rule.stage is Stage.IMPORT]
    assert [rule.name for rule in found if not (rule.examples and rule.doc)] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_the_parts_agree(rule: Rule, example: Example, native: Native) -> None:
    case = make_case(example.op or rule.ops[0], example.args, example.kwargs)
    converter = staged(case)
    if not rule.of_complex:  # of complex numbers there are the same ops on the parts
        assert case.op not in {op.name for op in converter.imported().op.walk()}
    check(case, converter.to_coreai(), native)

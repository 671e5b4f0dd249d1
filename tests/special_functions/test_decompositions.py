"""Generated from the `examples` of the catalog's decompositions, as for patcomp's others."""

from __future__ import annotations

import pytest

import special_functions_catalog
from patcomp.emit.native import Native
from patcomp.patterns import Example, Rule
from patcomp.patterns.user_catalogs import rules_of
from tests.catalog.exported import check_parts, decomposition_examples


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rule", "example"), decomposition_examples(rules_of(special_functions_catalog)))
def test_the_parts_agree(rule: Rule, example: Example, native: Native) -> None:
    check_parts(rule, example, native)

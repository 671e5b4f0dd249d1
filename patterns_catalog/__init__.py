"""The rules of patcomp, one family a file: normalize, composites, lowering, optimize."""

from functools import cache

from patcomp.patterns import RuleSet, collect
from patterns_catalog import composites, lowering, normalize, optimize


@cache
def default_rules() -> RuleSet:
    """Every rule of the catalog, in declared order."""
    families = (*normalize.FAMILIES, *composites.FAMILIES, *lowering.FAMILIES, *optimize.FAMILIES)
    return collect(*families)

"""The rules of patcomp, one family a file: decompositions, normalize, composites, lowering, optimize."""

from functools import cache

from patcomp.patterns import RuleSet, collect
from patterns_catalog import composites, lowering, normalize, optimize


@cache
def default_rules() -> RuleSet:
    """Every rule that rewrites the IR, in declared order."""
    families = (*normalize.FAMILIES, *composites.FAMILIES, *lowering.FAMILIES, *optimize.FAMILIES)
    return collect(*families)


@cache
def default_decompositions() -> RuleSet:
    """Every decomposition that import uses; none without PyTorch, in which they are written."""
    try:
        from patterns_catalog import decompositions
    except ModuleNotFoundError:
        return RuleSet()
    return collect(*decompositions.FAMILIES)

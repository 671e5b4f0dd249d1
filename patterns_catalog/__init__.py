"""The rules of patcomp, one family a file, in a folder for each stage."""

from functools import cache
from importlib.util import find_spec

from patcomp.patterns import Decompositions, DeferredRuleSet, RuleSet
from patcomp.patterns.installed_catalogs import own_catalogs
from patcomp.patterns.user_catalogs import rules_of
from patterns_catalog import decompose, lower, normalize, optimize, recover, target

# made when the catalog is imported, because that declares the composites that patterns may name
_RULES = RuleSet(
    rule
    for stage in (normalize, recover, lower, target, optimize)
    for rule in sorted(rules_of(stage), key=lambda rule: rule.name)
)


def default_rules() -> RuleSet:
    """Every rule that rewrites the IR: stage by stage, sorted by name, which decides ties."""
    return _RULES


@cache
def default_decompositions() -> RuleSet:
    """Every decomposition of this package; none without PyTorch, in which they are written."""
    return RuleSet() if find_spec("torch") is None else rules_of(decompose)


def _decompositions() -> list[Decompositions]:
    own = [] if find_spec("torch") is None else own_catalogs()
    return [*own, Decompositions(default_decompositions)]


_ALL = DeferredRuleSet(_decompositions, _RULES)


def all_rules() -> RuleSet:
    """The decompositions, also those of patcomp's further catalogs, which are loaded when one is asked for, and the
    default rules."""
    return _ALL

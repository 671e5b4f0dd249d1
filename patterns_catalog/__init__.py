"""The rules of patcomp, one family a file, in a folder for each stage."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from patcomp.patterns import Decompositions, DeferredRuleSet, LoadedRuleSet, RuleSet, Stage
from patcomp.patterns.installed_catalogs import own_catalogs
from patcomp.patterns.user_catalogs import rules_of


@cache
def rules_of_stage(stage: Stage) -> RuleSet:
    """The rules in the folder of a stage, sorted by name, which decides ties. They are loaded when one is asked for."""
    return LoadedRuleSet(lambda: sorted(rules_of(import_module(f"{__name__}.{stage}")), key=lambda rule: rule.name))


len(rules_of_stage(Stage.RECOVER))  # loading them declares the composites that patterns may name


@cache
def default_rules() -> RuleSet:
    """Every rule that rewrites the IR, stage by stage."""
    return _ALL.rewrites


@cache
def default_decompositions() -> RuleSet:
    """Every decomposition of this package; none without PyTorch, in which they are written."""
    return RuleSet() if find_spec("torch") is None else rules_of_stage(Stage.DECOMPOSE)


def _decompositions() -> list[Decompositions]:
    own = [] if find_spec("torch") is None else own_catalogs()
    return [*own, Decompositions(default_decompositions)]


_ALL = DeferredRuleSet(_decompositions, rules_of_stage)


def all_rules() -> RuleSet:
    """The decompositions, also those of patcomp's further catalogs, and the default rules. A decomposition is loaded
    when a program needs one, the rules of a stage when it runs."""
    return _ALL

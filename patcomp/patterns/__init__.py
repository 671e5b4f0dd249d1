"""The pattern language and its machine; it knows no op of any dialect."""

from patcomp.patterns.aspects import FurtherResults
from patcomp.patterns.catalog import RuleSet, collect
from patcomp.patterns.conditions import condition
from patcomp.patterns.context import Context
from patcomp.patterns.declarations import (
    Rewrite,
    decomposition,
    formula,
    lowering,
    normalization,
    op_rule,
    optimization,
    rule,
    targeting,
)
from patcomp.patterns.deferred import Decompositions, DeferredRuleSet, LoadedRuleSet
from patcomp.patterns.driver import run
from patcomp.patterns.expressions import Assumption, call, check, compute, is_in, tag
from patcomp.patterns.index import Index
from patcomp.patterns.language import ANY, LAST, Attr, Capture, Const, any_of
from patcomp.patterns.op_view import Example, OpView, Rejected, example
from patcomp.patterns.pattern import Pattern, pattern
from patcomp.patterns.rule import Rule
from patcomp.patterns.stage import Stage
from patcomp.patterns.statistics import Statistics
from patcomp.patterns.targets import CompositeTable, build, composites

__all__ = [
    "ANY",
    "LAST",
    "Assumption",
    "Attr",
    "Capture",
    "CompositeTable",
    "Const",
    "Context",
    "Decompositions",
    "DeferredRuleSet",
    "Example",
    "FurtherResults",
    "Index",
    "LoadedRuleSet",
    "OpView",
    "Pattern",
    "Rejected",
    "Rewrite",
    "Rule",
    "RuleSet",
    "Stage",
    "Statistics",
    "any_of",
    "build",
    "call",
    "check",
    "collect",
    "composites",
    "compute",
    "condition",
    "decomposition",
    "example",
    "formula",
    "is_in",
    "lowering",
    "normalization",
    "op_rule",
    "optimization",
    "pattern",
    "rule",
    "run",
    "tag",
    "targeting",
]

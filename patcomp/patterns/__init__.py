"""The pattern language and its machine; it knows no op of any dialect."""

from patcomp.patterns.aspects import FurtherResults
from patcomp.patterns.catalog import RuleSet, collect
from patcomp.patterns.decomposition import Decomposition, decomposition
from patcomp.patterns.driver import run
from patcomp.patterns.expressions import Assumption, check, compute, is_in, tag
from patcomp.patterns.fragment import Fragment, fragment
from patcomp.patterns.index import Index
from patcomp.patterns.language import ANY, LAST, Attr, Capture, Const, any_of
from patcomp.patterns.procedural import (
    Example,
    OpRule,
    OpView,
    Rejected,
    example,
    lowering,
    normalization,
    op_rule,
    optimization,
)
from patcomp.patterns.rule import Rewrite, Rule, rule
from patcomp.patterns.stage import Stage
from patcomp.patterns.statistics import Statistics
from patcomp.patterns.targets import CompositeTable, FunctionTable, composites

__all__ = [
    "ANY",
    "LAST",
    "Assumption",
    "Attr",
    "Capture",
    "CompositeTable",
    "Const",
    "Decomposition",
    "Example",
    "Fragment",
    "FunctionTable",
    "FurtherResults",
    "Index",
    "OpRule",
    "OpView",
    "Rejected",
    "Rewrite",
    "Rule",
    "RuleSet",
    "Stage",
    "Statistics",
    "any_of",
    "check",
    "collect",
    "composites",
    "compute",
    "decomposition",
    "example",
    "fragment",
    "is_in",
    "lowering",
    "normalization",
    "op_rule",
    "optimization",
    "rule",
    "run",
    "tag",
]

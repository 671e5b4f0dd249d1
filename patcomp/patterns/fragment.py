"""A pattern without a target, which procedural rules ask for at a value.

    @fragment
    def scaled(a, x, factor: Const):
        "x * factor"
        return x * factor, [factor.rank == 0]

    match = scaled.match(value)     # None, or a Match: match["x"], match["factor"]

A construct that repeats any number of times, such as an unrolled loop, is no pattern, but its steps are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.namespaces import DialectView, aten_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import OpResult
from patcomp.patterns.expressions import lift
from patcomp.patterns.language import SourceNamespace
from patcomp.patterns.match import Match, Matcher
from patcomp.patterns.rule import Rewrite, Rule, captures_of, checked_root
from patcomp.patterns.stage import Stage


class Fragment:
    """A pattern with conditions; all that holds for the source of a rule holds for it."""

    def __init__(self, rule: Rule):
        self.rule = rule

    def match(self, value: Value) -> Match | None:
        """How the pattern makes up a value, or None. Uses of the value itself do not matter."""
        if not isinstance(value.ssa, OpResult):
            return None
        match = Matcher(self.rule, value.ssa.op).run()
        return match if match is not None and value.ssa in match.replaced else None


def fragment(function: Callable[..., Any], *, source: DialectView = aten_namespace) -> Fragment:
    """Declares a fragment: a function of the source namespace and the captures that returns a pattern and a list of
    conditions.

    Raises:
        RuleError: the declaration cannot mean anything.
    """
    code = function.__code__
    place = f"{'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{code.co_firstlineno}"
    namespace = SourceNamespace(source)
    try:
        captures = captures_of(function, namespace, namespaces=1)
        pattern, where = function(namespace, *captures.values())
        root = checked_root(captures, Rewrite(pattern, to=(), where=where), source)
    except RuleError as error:
        raise RuleError(f"fragment {function.__name__} ({place}): {error}") from None
    conditions = tuple(lift(condition) for condition in where)
    doc = (function.__doc__ or "").strip()
    return Fragment(Rule(function.__name__, Stage.RECOVER, doc, place, source, root, (), conditions, captures))

"""Fragments: patterns that procedural rules match at a value.

    @fragment
    def scaled(a, x, factor: Const):
        "x * factor"
        return x * factor, [factor.rank == 0]

    match = scaled.match(value)     # None, or a Match: match["x"], match["factor"]

A construct that repeats any number of times, such as an unrolled loop, is no pattern, but each step can be a fragment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.namespaces import DialectInterface, aten_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import OpResult
from patcomp.patterns.language import OpNode, SourceNamespace
from patcomp.patterns.match import Match, Matcher
from patcomp.patterns.pattern import Pattern, captures_of, place_of
from patcomp.patterns.targets import composites


class Fragment:
    """A pattern to match at values."""

    def __init__(self, pattern: Pattern):
        self.pattern = pattern

    def match(self, value: Value) -> Match | None:
        """The match of the pattern that produces a value, or None. The value may have any uses."""
        if not isinstance(value.ssa, OpResult):
            return None
        match = Matcher(self.pattern, value.ssa.op).run()
        return match if match is not None and value.ssa in match.replaced else None


def fragment(
    function: Callable[..., Any], *, source: DialectInterface = aten_namespace, is_shared: bool = False
) -> Fragment:
    """Declare a fragment: a function of the source namespace and the captures returns a pattern and a list of
    conditions.

    Args:
        function: the declaration.
        source: the dialect of the pattern.
        is_shared: whether inner values may have users outside the match, such as other fragments of one construct; the
            rule decides what they mean.

    Raises:
        RuleError: the declaration is wrong.
    """
    namespace = SourceNamespace(source, composites)
    try:
        captures = captures_of(function, namespace, 1)
        root, conditions = function(namespace, *captures.values())
        pattern = Pattern.declared(source, root, captures, conditions)
    except RuleError as error:
        raise RuleError(f"fragment {function.__name__} ({place_of(function)}): {error}") from None
    if is_shared:
        for node in pattern.nodes:
            if isinstance(node, OpNode):
                node.escapes = True
    return Fragment(pattern)

"""`Pattern`: the ops and the conditions of a match, without the replacement that a rule builds.

    @pattern
    def scaled(a, x, factor: Const):
        "x * factor"
        return x * factor, [factor.rank == 0]

    match = scaled.match(value)     # None, or a Match: match["x"], match["factor"]

A construct that repeats any number of times, such as an unrolled loop, is no pattern, but each of its steps can be one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from patcomp.errors import RuleError
from patcomp.ir.namespaces import DialectInterface, aten_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import OpResult
from patcomp.patterns.expressions import Expression, Tag, lift
from patcomp.patterns.language import (
    AnyOf,
    AnyValue,
    Attr,
    Capture,
    Const,
    OpNode,
    PatternNode,
    ResultNode,
    SourceNamespace,
    op_nodes,
)
from patcomp.patterns.match import Match, Matcher
from patcomp.patterns.targets import composites


@dataclass(frozen=True, eq=False)
class Pattern:
    """A graph of ops to match, and conditions."""

    dialect: DialectInterface
    """The dialect of its ops."""
    root: PatternNode
    captures: Mapping[str, Any]
    """The `Capture`, `Const` or `Attr` of each name; all of them are part of the graph."""
    conditions: tuple[Expression, ...] = ()

    @classmethod
    def declared(
        cls, dialect: DialectInterface, root: Any, captures: Mapping[str, Any], conditions: Any = ()
    ) -> Pattern:
        """The pattern of a declaration, after checks.

        Raises:
            RuleError: the declaration is wrong.
        """
        listed = conditions if isinstance(conditions, list | tuple) else (conditions,)
        for condition in listed:
            if not isinstance(condition, Expression):
                raise RuleError(f"where= holds {condition!r}, which is not a condition on the match")
        pattern = cls(dialect, root, captures, tuple(map(lift, listed)))
        pattern._check()
        return pattern

    @cached_property
    def nodes(self) -> tuple[Any, ...]:
        """Every pattern node and attribute capture, each once."""
        return tuple(pattern_nodes(self.root))

    @cached_property
    def size(self) -> int:
        """The number of ops that the largest alternative matches."""
        return len(largest(self.root))

    @cached_property
    def root_ops(self) -> tuple[str, ...]:
        """The names of the ops that a match can start from."""
        return tuple(dict.fromkeys(node.spec.op_name for node in op_nodes(self.root)))

    @cached_property
    def is_local(self) -> bool:
        """Whether types, properties and constant operands of an op decide about a match at it: each alternative is a
        single op, and the conditions read nothing else."""
        roots = self.root.alternatives if isinstance(self.root, AnyOf) else (self.root,)
        inner = [node for root in roots if isinstance(root, OpNode) for node in pattern_nodes([*children(root)])]
        return (
            all(isinstance(root, OpNode) for root in roots)
            and not any(isinstance(node, OpNode | ResultNode) for node in inner)
            and all(condition.is_local for condition in self.conditions)
        )

    def match(self, value: Value) -> Match | None:
        """The match that produces a value, or None. The value may have any uses."""
        if not isinstance(value.ssa, OpResult):
            return None
        found = Matcher(self, value.ssa.op).run()
        return found if found is not None and value.ssa in found.replaced else None

    def check_expression(self, expression: Expression, place: str | None = None) -> None:
        """Check that an expression reads only values and attributes of the pattern.

        Args:
            place: where the expression is, for the message; a condition is quoted.

        Raises:
            RuleError: the expression reads something else.
        """

        def error(reads: str) -> RuleError:
            # the text of a condition is made here only, because it costs more than all checks
            return RuleError(f"{place or f'condition `{expression.text}`'} reads {reads}")

        for node in expression.captured():
            if not self.binds(node):
                raise error(f"{node}, which the source does not match")
        tags = {node.tag for node in self.nodes if isinstance(node, AnyOf)}
        for leaf in expression.leaves():
            if isinstance(leaf, Tag) and leaf.name not in tags:
                raise error(f"{leaf.text}, which no any_of sets")

    def binds(self, node: Any) -> bool:
        """Whether a node is part of the pattern."""
        return id(node) in self._identities

    @cached_property
    def _identities(self) -> frozenset[int]:
        return frozenset(map(id, self.nodes))

    def _check(self) -> None:
        root = self.root
        if not isinstance(root, OpNode | ResultNode | AnyOf):
            raise RuleError(f"the source is {root!r}, not an op of {self.dialect.name}")
        for node in self.nodes:
            if isinstance(node, OpNode) and node.source is not None and node.source.dialect is not self.dialect:
                raise RuleError(f"{node.spec.name} is not an op of {self.dialect.name}, the source dialect")
        for alternative in root.alternatives if isinstance(root, AnyOf) else ():
            if isinstance(alternative, Capture | AnyValue):
                raise RuleError("an alternative of the root is not an op: it would match every value")
        for name, capture in self.captures.items():
            if not self.binds(capture):
                raise RuleError(f"the source does not use the parameter {name}")
        tags = [node.tag for node in self.nodes if isinstance(node, AnyOf) and node.tag is not None]
        if len(tags) > len(set(tags)):
            raise RuleError("two any_of have the same tag=")
        for condition in self.conditions:
            self.check_expression(condition)


def children(node: Any) -> Iterator[Any]:
    """The parts of a pattern node or of one of its arguments."""
    if isinstance(node, OpNode):
        yield from node.arguments.values()
    elif isinstance(node, ResultNode):
        yield node.node
    elif isinstance(node, AnyOf):
        yield from node.alternatives
    elif isinstance(node, list | tuple):
        yield from node


def pattern_nodes(node: Any, parts: Callable[[Any], Iterable[Any]] = children) -> Iterator[Any]:
    """Every pattern node and attribute capture below a node, itself included, each once.

    Args:
        parts: returns the nodes directly below a node.
    """
    seen: set[int] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        if isinstance(item, PatternNode | Attr):
            seen.add(id(item))
            yield item
        stack.extend(reversed(list(parts(item))))


def largest(node: Any) -> dict[int, OpNode]:
    """The op nodes of the largest way in which a pattern can match, by identity."""
    known: dict[int, dict[int, OpNode]] = {}

    def found(node: Any) -> dict[int, OpNode]:
        # nodes are shared: a pattern with many alternatives has far more paths than nodes
        if id(node) not in known:
            below = [found(child) for child in children(node)]
            own = {id(node): node} if isinstance(node, OpNode) else {}
            if isinstance(node, AnyOf):
                below = [max(below, key=len)]
            known[id(node)] = own | {key: inner for nodes in below for key, inner in nodes.items()}
        return known[id(node)]

    return found(node)


_KINDS: dict[Any, type] = {
    inspect.Parameter.empty: Capture,
    Any: Capture,
    **{key: kind for kind in (Capture, Const, Attr) for key in (kind, kind.__name__)},
    "Any": Capture,
}
"""The kind of capture for each annotation. In modules that postpone their evaluation, annotations are text."""


def captures_of(function: Callable[..., Any], source: SourceNamespace, namespaces: int) -> dict[str, Any]:
    """The captures of a declaration by name: the parameters of its function after the namespaces.

    Raises:
        RuleError: there are too few parameters, or an annotation is no kind of capture.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) < namespaces:
        raise RuleError("a rule's function takes the source namespace, the target namespace, and the captures")
    captures: dict[str, Any] = {}
    for parameter in parameters[namespaces:]:
        annotation = parameter.annotation
        kind = _KINDS.get(annotation.rpartition(".")[2] if isinstance(annotation, str) else annotation)
        if kind is None:
            raise RuleError(f"{parameter.name} is annotated {annotation!r}; a capture is Capture, Const or Attr")
        captures[parameter.name] = Attr(parameter.name) if kind is Attr else kind(parameter.name, source)
    return captures


@overload
def pattern(function: Callable[..., Any], /) -> Pattern: ...


@overload
def pattern(*, source: DialectInterface = ..., is_shared: bool = ...) -> Callable[[Callable[..., Any]], Pattern]: ...


def pattern(
    function: Callable[..., Any] | None = None,
    /,
    *,
    source: DialectInterface = aten_namespace,
    is_shared: bool = False,
) -> Any:
    """Declare a pattern: a function of the source namespace and the captures returns the root and the conditions. The
    decorated name becomes a `Pattern`.

    Args:
        source: the dialect of the pattern.
        is_shared: whether inner values may have users outside the match, such as other patterns of one construct; the
            rule decides what they mean.

    Raises:
        RuleError: the declaration is wrong.
    """

    def declare(function: Callable[..., Any]) -> Pattern:
        namespace = SourceNamespace(source, composites)
        try:
            captures = captures_of(function, namespace, 1)
            root, conditions = function(namespace, *captures.values())
            declared = Pattern.declared(source, root, captures, conditions)
        except RuleError as error:
            raise RuleError(f"pattern {function.__name__} ({place_of(function)}): {error}") from None
        for node in declared.nodes if is_shared else ():
            if isinstance(node, OpNode):
                node.escapes = True
        return declared

    return declare if function is None else declare(function)


def place_of(function: Callable[..., Any]) -> str:
    """File and line of a declaration, as messages show them."""
    code = inspect.unwrap(function).__code__
    return f"{'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{code.co_firstlineno}"


def file_of(function: Callable[..., Any]) -> str:
    """The path of the file of a declaration."""
    return inspect.unwrap(function).__code__.co_filename

"""The declarative rule: what `@rule` makes of a function, and the checks that it passes when declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from patcomp.errors import RuleError
from patcomp.ir.namespaces import DialectView, aten_namespace
from patcomp.patterns.aspects import Unspecified, check_unspecified
from patcomp.patterns.decomposition import Decomposition
from patcomp.patterns.expressions import Expression, Tag, lift
from patcomp.patterns.language import (
    AnyOf,
    AnyValue,
    Attr,
    Capture,
    Const,
    OpNode,
    Pattern,
    ResultNode,
    SourceNamespace,
)
from patcomp.patterns.procedural import OpRule
from patcomp.patterns.stage import Stage
from patcomp.patterns.targets import TargetCall, TargetNamespace, TargetResult, TargetView, composites


class Rewrite:
    """What a rule's function returns.

    Args:
        source: the root of the pattern.
        to: the target: a call of the target namespace, a capture, or a list of them where the root has
            several results.
        where: conditions that must hold.
    """

    def __init__(self, source: Pattern, *, to: Any, where: Sequence[Any] = ()):
        self.source, self.to = source, to
        self.where = tuple(where) if isinstance(where, list | tuple) else (where,)


@dataclass(frozen=True, eq=False)
class Rule:
    """A declarative rule: replace what `root` matches by `to`, where the conditions hold."""

    name: str
    stage: Stage
    doc: str
    source: str
    """File and line of the declaration."""
    view: DialectView
    root: Pattern
    to: Any
    where: tuple[Expression, ...]
    captures: Mapping[str, Any]
    priority: int = 0
    example: Mapping[str, Any] | None = None
    size: int = field(default=1)
    """How many ops the largest alternative matches, by which the driver ranks it."""
    unspecified: Unspecified = field(default_factory=dict)
    """What the rule leaves open, by aspect, with the reason."""

    def __repr__(self) -> str:
        return f"<rule {self.name} of {self.stage}, {self.source}>"

    def check_targets(self) -> None:
        """Checks that every op of the target exists, once all tables are filled.

        Raises:
            RuleError: one does not.
        """
        for call in target_calls(self.to):
            if call.view.spec(call.name) is None and not call.view.candidates(call.name):
                raise RuleError(f"rule {self.name} ({self.source}): {call.view.name} has no op {call.name!r}")


AnyRule = Rule | OpRule
Entry = AnyRule | Decomposition
"""What a catalog holds: rules, which rewrite the IR, and decompositions, which work before there is any."""


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


def walk(node: Any) -> Iterator[Any]:
    """Every pattern node and attribute capture below a node, itself included, each once."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        if isinstance(item, Pattern | Attr):
            seen.add(id(item))
            yield item
        stack.extend(reversed(list(children(item))))


def target_calls(target: Any) -> Iterator[TargetCall]:
    """Every call in a target."""
    for part in _target_parts(target):
        if isinstance(part, TargetCall):
            yield part


def _target_parts(target: Any) -> Iterator[Any]:
    yield target
    inner: Any = ()
    if isinstance(target, TargetCall):
        inner = (*target.arguments, *target.keywords.values())
    elif isinstance(target, TargetResult):
        inner = (target.call,)
    elif isinstance(target, list | tuple):
        inner = target
    elif isinstance(target, dict):
        inner = tuple(target.values())
    for part in inner:
        yield from _target_parts(part)


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
"""What each annotation means; annotations are text in a module that postpones their evaluation."""


def captures_of(function: Callable[..., Any], source: SourceNamespace, namespaces: int = 2) -> dict[str, Any]:
    """The captures of a rule's function by name: its parameters after the namespaces, of source and target."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) < namespaces:
        raise RuleError("a rule's function takes the source namespace, the target namespace, and the captures")
    captures: dict[str, Any] = {}
    for parameter in parameters[namespaces:]:
        annotation = parameter.annotation
        kind = _KINDS.get(annotation.rpartition(".")[2] if isinstance(annotation, str) else annotation)
        if kind is None:
            raise RuleError(f"{parameter.name} is annotated {annotation!r}; captures are plain, Const or Attr")
        captures[parameter.name] = Attr(parameter.name) if kind is Attr else kind(parameter.name, source)
    return captures


def checked_root(captures: Mapping[str, Any], rewrite: Rewrite, view: DialectView) -> Pattern:
    """The root, after the checks that need no IR.

    Raises:
        RuleError: the declaration cannot mean anything.
    """
    root = rewrite.source
    if not isinstance(root, OpNode | ResultNode | AnyOf):
        raise RuleError(f"the source is {root!r}, not an op of {view.name}")
    nodes = list(walk(root))
    within = {id(node) for node in nodes}
    for node in nodes:
        if isinstance(node, OpNode) and node.source is not None and node.source.dialect_view is not view:
            raise RuleError(f"{node.spec.name} is not an op of {view.name}, the source dialect")
    for alternative in root.alternatives if isinstance(root, AnyOf) else ():
        if isinstance(alternative, Capture | AnyValue):
            raise RuleError("an alternative of the root is not an op: it would match every value")
    for name, capture in captures.items():
        if id(capture) not in within:
            raise RuleError(f"the source does not use the parameter {name}")
    tags = {node.tag for node in nodes if isinstance(node, AnyOf)}
    if len([node for node in nodes if isinstance(node, AnyOf) and node.tag is not None]) > len(tags - {None}):
        raise RuleError("two any_of have the same tag=")
    for part in _target_parts(rewrite.to):
        if isinstance(part, Expression):
            _check_expression(part, within, tags, "the target")
        elif isinstance(part, Pattern) and id(part) not in within:
            raise RuleError(f"the target uses {part}, which the source does not match; build new ops with the target")
    for condition in rewrite.where:
        if not isinstance(condition, Expression):
            raise RuleError(f"where= holds {condition!r}, which is no condition on the match")
        _check_expression(condition, within, tags, f"condition `{condition.text}`")
    return root


def _check_expression(expression: Expression, within: set[int], tags: set[str | None], place: str) -> None:
    for node in expression.captured():
        if id(node) not in within:
            raise RuleError(f"{place} reads {node}, which the source does not match")
    for leaf in expression.leaves():
        if isinstance(leaf, Tag) and leaf.name not in tags:
            raise RuleError(f"{place} reads {leaf.text}, which no any_of sets")


@overload
def rule(function: Callable[..., Rewrite], /) -> Rule: ...


@overload
def rule(
    *,
    stage: str = ...,
    source: DialectView = ...,
    target: TargetView = ...,
    example: Mapping[str, Any] | None = ...,
    priority: int = ...,
    name: str | None = ...,
    unspecified: Unspecified | None = ...,
) -> Callable[[Callable[..., Rewrite]], Rule]: ...


def rule(
    function: Callable[..., Rewrite] | None = None,
    /,
    *,
    stage: str = "recover",
    source: DialectView = aten_namespace,
    target: TargetView = composites,
    example: Mapping[str, Any] | None = None,
    priority: int = 0,
    name: str | None = None,
    unspecified: Unspecified | None = None,
) -> Any:
    """Declares a rule; the decorated name becomes a `Rule`.

    Args:
        stage: `normalize`, `recover`, `lower` or `optimize`.
        source: the dialect of the first parameter.
        target: what the second parameter builds from.
        example: a type (`"2x8xf32"`), number or attribute value for each capture, from which tests are made.
        priority: rules of higher priority are tried first, whatever their size.
        name: the rule's name, when it is not the function's.
        unspecified: aspects that the tests do not compare (`patterns.aspects`), with the reason.

    Raises:
        RuleError: the declaration cannot mean anything: an argument is not mentioned, a capture is not bound,
            an op does not exist.
    """

    def declare(function: Callable[..., Rewrite]) -> Rule:
        code = function.__code__
        place = f"{'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{code.co_firstlineno}"
        spelled = name or function.__name__.strip("_")
        namespace = SourceNamespace(source)
        try:
            served = Stage.of_rewrites(stage)
            captures = captures_of(function, namespace)
            rewrite = function(namespace, TargetNamespace(target), *captures.values())
            if not isinstance(rewrite, Rewrite):
                raise RuleError(f"the function returned {rewrite!r}, not a Rewrite")
            root = checked_root(captures, rewrite, source)
            check_unspecified(unspecified or {})
            if example is not None and set(example) != set(captures):
                raise RuleError(f"the example gives {sorted(example)}, the captures are {sorted(captures)}")
        except RuleError as error:
            raise RuleError(f"rule {spelled} ({place}): {error}") from None
        return Rule(
            spelled,
            served,
            (function.__doc__ or "").strip(),
            place,
            source,
            root,
            rewrite.to,
            tuple(lift(condition) for condition in rewrite.where),
            captures,
            priority,
            example,
            len(largest(root)),
            unspecified or {},
        )

    return declare if function is None else declare(function)

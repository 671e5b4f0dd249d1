"""The declarative rule: what `@rule` makes of a function, and the checks that it passes when declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from patcomp.errors import RuleError
from patcomp.ir.namespaces import DialectView, aten_namespace
from patcomp.patterns.aspects import Unspecified, check_unspecified
from patcomp.patterns.decomposition import Decomposition
from patcomp.patterns.expressions import Expression
from patcomp.patterns.language import PatternNode, SourceNamespace
from patcomp.patterns.pattern import Pattern, captures_of, place_of
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

    def __init__(self, source: PatternNode, *, to: Any, where: Sequence[Any] = ()):
        self.source, self.to, self.where = source, to, where


@dataclass(frozen=True, eq=False)
class Rule:
    """A declarative rule: replace what the pattern matches by `to`."""

    name: str
    stage: Stage
    doc: str
    source: str
    """File and line of the declaration."""
    pattern: Pattern
    to: Any
    priority: int = 0
    example: Mapping[str, Any] | None = None
    unspecified: Unspecified = field(default_factory=dict)
    """What the rule leaves open, by aspect, with the reason."""

    def __repr__(self) -> str:
        return f"<rule {self.name} of {self.stage}, {self.source}>"

    @property
    def size(self) -> int:
        """How many ops the rule matches at most, by which the driver ranks it."""
        return self.pattern.size

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


def _check_target(pattern: Pattern, target: Any) -> None:
    """Checks that a target uses only what the pattern binds.

    Raises:
        RuleError: it uses something else.
    """
    for part in _target_parts(target):
        if isinstance(part, Expression):
            pattern.check_expression(part, "the target")
        elif isinstance(part, PatternNode) and not pattern.binds(part):
            raise RuleError(f"the target uses {part}, which the source does not match; build new ops with the target")


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
        place = place_of(function)
        spelled = name or function.__name__.strip("_")
        namespace = SourceNamespace(source, composites.spec)
        try:
            served = Stage.of_rewrites(stage)
            captures = captures_of(function, namespace, 2)
            rewrite = function(namespace, TargetNamespace(target), *captures.values())
            if not isinstance(rewrite, Rewrite):
                raise RuleError(f"the function returned {rewrite!r}, not a Rewrite")
            pattern = Pattern.declared(source, rewrite.source, captures, rewrite.where)
            _check_target(pattern, rewrite.to)
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
            pattern,
            rewrite.to,
            priority,
            example,
            unspecified or {},
        )

    return declare if function is None else declare(function)

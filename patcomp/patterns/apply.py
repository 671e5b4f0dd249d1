"""`apply` builds a rule's replacement for an op, or returns a refusal. Every stage calls it for every rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any

from patcomp.errors import DynamicSizeError, Problem, RuleError
from patcomp.ir.builder import Builder
from patcomp.ir.infer import InferenceError, RuntimeRefusalError, compatible
from patcomp.ir.locations import fused, problem_at
from patcomp.ir.namespaces import composite_spec, coreai_namespace
from patcomp.ir.types import TensorType, shape_of
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Operation, SSAValue
from patcomp.patterns.context import Context
from patcomp.patterns.expressions import Expression, Undefined
from patcomp.patterns.formula import Declined
from patcomp.patterns.language import Attr, PatternNode
from patcomp.patterns.match import Failure, Match, Matcher
from patcomp.patterns.op_view import OpView, Rejected
from patcomp.patterns.rule import Rule
from patcomp.patterns.targets import TargetCall, TargetResult


@dataclass(frozen=True)
class Refusal:
    """Why a rule does not apply to an op."""

    said: str | Rejected = ""
    declined: bool = False
    """Whether the reason only says that the op is one for another rule."""
    failure: Failure | None = None
    """The point at which the match failed, if it was traced."""
    exhausted: bool = False
    """Whether the match ran out of fuel, because the pattern has too many operand orders to try."""

    @property
    def reason(self) -> str:
        """The reason that a rule gives; empty if it gives none, or if a pattern does not match."""
        return str(self.said)


@dataclass(frozen=True)
class Replacement:
    """The values that a rule built in front of the op."""

    values: Sequence[Value]
    replaced: Sequence[SSAValue]
    """The values that `values` replace, one for one."""
    matched: Sequence[Operation]
    """The ops that the rewrite stands for, the root first."""


@dataclass(frozen=True)
class Rebuilding:
    """An op's arguments and types in the graph that the lower stage builds. The other stages rewrite in place."""

    arguments: Mapping[str, Any]
    types: Sequence[Attribute]
    """The types of the results. The values that a rule builds may have more static dimensions."""


class BrokenRuleError(RuleError):
    """A condition or the function of a rule raised an exception, or the rule built an invalid replacement. `problem`
    names the rule and the place."""

    def __init__(self, problem: Problem):
        super().__init__(str(problem))
        self.problem = problem


_NO_MATCH = Refusal()


def apply(
    rule: Rule,
    op: Operation,
    builder: Builder,
    context: Context,
    *,
    rebuilding: Rebuilding | None = None,
    trace: bool = False,
) -> Replacement | Refusal:
    """Build a rule's replacement for an op. If the rule refuses the op, its new ops are removed.

    Args:
        rule: the rule.
        op: the op; its name is in `rule.ops`.
        builder: inserts the new ops; its location becomes the rule's.
        context: what the rule is given.
        rebuilding: the op's arguments and types if it is not rewritten in place.
        trace: whether a refusal has the point at which the match failed.

    Raises:
        BrokenRuleError: a condition or the function raised an exception; or the rule left an argument unread, built an
            invalid op, or returned another number of values, or values of other types, than it replaces.
    """
    kept = len(builder.created)
    made: Replacement | Refusal = _NO_MATCH
    try:
        if rule.function is not None:
            made = _call(rule, op, builder, context, rebuilding)
        else:
            matcher = Matcher(rule.graph, op, fuel=context.fuel, trace=trace, assumed=context.assumed)
            made = _instantiate(rule, op, builder, matcher)
    except Rejected as refusal:
        # a traceback would keep this frame, and so the refusal, until the garbage collector finds the circle
        made = Refusal(refusal.with_traceback(None), declined=isinstance(refusal, Declined))
    except (OverflowError, RuntimeRefusalError) as refusal:
        # a number that does not fit its type, or an op that the runtime cannot run, is not a defect of the rule
        made = Refusal(str(refusal))
    except DynamicSizeError as error:
        made = Refusal(f"{rule.name} needs sizes that are known before the program runs ({error})")
    except Exception as error:
        raise BrokenRuleError(problem_at(op, f"rule {rule.name} ({rule.source}){_told(error, op, rule)}")) from error
    finally:
        if isinstance(made, Refusal) and len(builder.created) > kept:
            builder.take_back(kept)
    return made


def _told(error: Exception, op: Operation, rule: Rule) -> str:
    """What went wrong in a rule, and in which line of its file, if it was a line of its function."""
    if isinstance(error, InferenceError):
        return f": it built an invalid op for {op.name}: {error}"
    if isinstance(error, RuleError):
        return f": {error}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == rule.file]
    at = f" (at {rule.source.rpartition(':')[0]}:{lines[-1]})" if lines else ""
    return f" failed: {type(error).__name__}: {error}{at}"


def _call(
    rule: Rule, op: Operation, builder: Builder, context: Context, rebuilding: Rebuilding | None
) -> Replacement | Refusal:
    """The replacement that a rule's function builds."""
    assert rule.function is not None
    if context.namespace is None:
        raise RuleError(
            "the rule has a function, so the context of the run needs namespace=, with which the function builds"
        )
    if rule.composite is not None:
        if not rule.composite.made(op):
            return _NO_MATCH
        arguments: Mapping[str, Any] = coreai_namespace.arguments_of(op, composite_spec(rule.composite))
    elif rebuilding is not None:
        arguments = rebuilding.arguments
    else:
        arguments = op.arguments_by_name()  # type: ignore[attr-defined]
    view = OpView(op, arguments, rebuilding.types if rebuilding else None, context.assumed)
    builder.location = lambda: fused(rule.name, view.matched)
    with builder:
        made = rule.function(view, context.namespace)
    if made is None:
        return _NO_MATCH
    given = list(made) if isinstance(made, list | tuple) else [made]
    if len(given) != len(view.results):
        raise RuleError(f"the function returned {len(given)} values, but {op.name} has {len(view.results)} results")
    # None stands for a result that nobody reads
    pairs = [
        pair for pair in zip(given, op.results, strict=True) if pair[0] is not None or pair[1].first_use is not None
    ]
    values, results = [value for value, _ in pairs], [result for _, result in pairs]
    if wrong := [value for value in values if not isinstance(value, Value)]:
        raise RuleError(f"the function returned {wrong[0]!r} for {op.name}, which is not a value")
    if view.unread:
        raise RuleError(f"the function does not account for argument {', '.join(sorted(view.unread))} of {op.name}")
    types = [view.results[result.index].attribute for result in results]
    _check_types(values, types, op, exact=rebuilding is None)
    if rebuilding is not None and (view.replaced or len(view.matched) > 1):
        raise RuleError("the rule covers several ops; only the stages that rewrite in place can have such rules")
    others = [old.ssa for old, _ in view.replaced]
    _check_types([new for _, new in view.replaced], [old.type for old in others], op, exact=True)
    return Replacement([*values, *(new for _, new in view.replaced)], [*results, *others], view.matched)


def _instantiate(rule: Rule, op: Operation, builder: Builder, matcher: Matcher) -> Replacement | Refusal:
    """The replacement that a rule's target describes, if the pattern matches."""
    match = matcher.run()
    if match is None:
        if matcher.exhausted or matcher.failure:
            return Refusal("its pattern does not match", failure=matcher.failure, exhausted=matcher.exhausted)
        return _NO_MATCH
    replaced = match.replaced
    types = [value.type for value in replaced]
    builder.location = lambda: fused(rule.name, match.covered)
    with builder:
        values = _Instantiation(match).root(rule.to, types)
    if len(values) != len(types):
        raise RuleError(f"the target gives {len(values)} values, but {op.name} has {len(types)} results")
    _check_types(values, types, op, exact=True)
    return Replacement(values, replaced, match.covered)


def _check_types(values: Sequence[Value], types: Sequence[Attribute], op: Operation, *, exact: bool) -> None:
    for index, (value, wanted) in enumerate(zip(values, types, strict=True)):
        given = value.ssa.type
        if given != wanted and (exact or mismatch(value, wanted)):
            raise RuleError(f"the rule gives {given} for result {index} of {op.name}, which is {wanted}")


def mismatch(value: object, wanted: Attribute) -> str:
    """Why a result of a type cannot be replaced by something; empty if it can."""
    assert isinstance(wanted, TensorType)
    if not isinstance(value, Value):
        native = type(value).__module__.startswith("coreai.")
        what = "an object of coreai-core (build it with patcomp.ir.coreai)" if native else "no value"
        return f"{value!r}, which is {what}, for {wanted}"
    given = value.ssa.type
    if not isinstance(given, TensorType):
        return f"{given} for {wanted}"
    if given.element_type != wanted.element_type:
        return f"{given} for {wanted}, of another element type"
    if len(shape_of(given)) != len(shape_of(wanted)):
        return f"{given} for {wanted}, of another rank"
    return "" if compatible(shape_of(given), shape_of(wanted)) else f"{given} for {wanted}, of another shape"


class _Instantiation:
    """Builds the target of a match, each part once."""

    def __init__(self, match: Match):
        self.match = match
        self.built: dict[int, Any] = {}

    def root(self, target: Any, types: Sequence[Any]) -> list[Value]:
        """The replacement values."""
        if isinstance(target, list | tuple):
            made: Any = [self.value(item, None if len(types) != 1 else types) for item in target]
        else:
            made = self.value(target, types)
        values = list(made) if isinstance(made, list | tuple) else [made]
        if wrong := [value for value in values if not isinstance(value, Value)]:
            raise RuleError(f"the target gives {wrong[0]!r}, which is not a value")
        return values

    def value(self, part: Any, types: Sequence[Any] | None = None) -> Any:
        """The value or attribute of a part of the target."""
        if isinstance(part, TargetCall):
            if id(part) not in self.built:
                arguments = [self.value(item) for item in part.arguments]
                keywords = {name: self.value(item) for name, item in part.keywords.items()}
                self.built[id(part)] = part.make(arguments, keywords, types)
            return self.built[id(part)]
        if isinstance(part, TargetResult):
            return self.value(part.call)[part.index]
        if isinstance(part, PatternNode):
            return self.match.value_of(part)
        if isinstance(part, Attr) and id(part) not in self.match.attributes:
            return None  # its alternative was not taken
        if isinstance(part, Expression):
            return self._attribute(part)
        if isinstance(part, list | tuple):
            return type(part)(self.value(item) for item in part)
        if isinstance(part, dict):
            return {name: self.value(item) for name, item in part.items()}
        return part

    def _attribute(self, part: Expression) -> Any:
        try:
            return part.evaluate(self.match)
        except Undefined as reason:
            raise RuleError(f"the target's {part.text} has no value: {reason}") from None

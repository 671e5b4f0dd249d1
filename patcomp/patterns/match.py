"""Match one pattern at one op: backtracking over operand orders and alternatives, with a limited number of steps.

The matcher solves goals `(pattern, actual value)` one after another. At a choice (an `any_of`, or the two orders of a
commutative op) it recurses with the remaining goals, so that a late failure tries the next choice. The check of uses
outside the match and the conditions are the last goals of the search: if they fail, the next choice is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from patcomp.errors import RuleError
from patcomp.ir.constants import constant_equals, unread_values
from patcomp.ir.namespaces import DialectInterface, OpSpec
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Operation, OpResult, SSAValue
from patcomp.patterns.expressions import Binary, Both, Expression, PythonValue, Undefined
from patcomp.patterns.language import (
    ANY,
    LAST,
    AnyOf,
    AnyValue,
    Attr,
    Capture,
    Const,
    Number,
    OpNode,
    PatternNode,
    ResultNode,
)


class Graph(Protocol):
    """What the matcher reads of a `Pattern`."""

    @property
    def dialect(self) -> DialectInterface: ...

    @property
    def root(self) -> PatternNode: ...

    @property
    def captures(self) -> Mapping[str, Any]: ...

    @property
    def conditions(self) -> tuple[Expression, ...]: ...


FUEL = 20_000
"""The number of steps that one attempt may take; 15 ambiguous commutative ops have 2**15 orders."""


class Phase(IntEnum):
    """What the search does, in order."""

    STRUCTURE = 0
    USES = 1
    """It checks that no inner value is used outside the match."""
    CONDITIONS = 2


@dataclass(frozen=True)
class Failure:
    """The deepest point that an attempt reached, and why it failed there."""

    matched: int
    """The number of ops that were matched before."""
    phase: Phase
    bound: int
    """The number of values that were bound before. Of two attempts with equally many ops, the one with more is
    deeper."""
    op: Operation | None
    reason: str

    @property
    def depth(self) -> tuple[int, Phase, int]:
        """The key by which the deepest failure is chosen."""
        return self.matched, self.phase, self.bound


class Match:
    """The values and ops that a pattern matched. `match["x"]` is the value of the capture `x`."""

    def __init__(self, pattern: Graph, root: Operation, assumed: Collection[str] = ()):
        self.pattern, self.root, self.assumed = pattern, root, assumed
        self.values: dict[int, SSAValue] = {}
        """The value of each capture and alternative, by the identity of its node."""
        self.attributes: dict[int, Any] = {}
        self.nodes: dict[int, Operation] = {}
        """The op of each op node, by the identity of its node."""
        self.ops: dict[Operation, OpNode] = {}
        """The matched ops, the root first, each with a node that matched it."""
        self.choices: dict[int, int] = {}
        """Which alternative each `any_of` took, by the identity of its node."""
        self.tags: dict[str, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        node = self.pattern.captures[key] if isinstance(key, str) else key
        return self.attribute_of(node) if isinstance(node, Attr) else self.value_of(node)

    def value_of(self, node: Any) -> Value | None:
        """The value that a pattern node matched; None if its alternative was not taken."""
        value = self.values.get(id(node))
        if value is not None:
            return Value(value)
        if isinstance(node, ResultNode):
            op = self.nodes.get(id(node.node))
            return None if op is None else Value(op.results[node.index])
        if isinstance(node, OpNode):
            op = self.nodes.get(id(node))
            return None if op is None else Value(op.results[0])
        if isinstance(node, AnyOf) and id(node) in self.choices:
            return self.value_of(node.alternatives[self.choices[id(node)]])
        return None

    def attribute_of(self, attribute: Attr) -> Any:
        """The Python value that an attribute capture matched.

        Raises:
            Undefined: its alternative was not taken.
        """
        if id(attribute) not in self.attributes:
            raise Undefined(f"{attribute.name} is not part of the alternative that matched")
        return self.attributes[id(attribute)]

    @property
    def covered(self) -> list[Operation]:
        """The matched ops that the rewrite stands for, the root first."""
        return [op for op, node in self.ops.items() if op is self.root or not node.is_seen]

    @property
    def replaced(self) -> list[SSAValue]:
        """The results that the rule replaces: one result of the root, or all of them."""
        index = _root_index(self.pattern.root, self)
        return list(self.root.results) if index is None else [self.root.results[index]]


def _root_index(node: Any, match: Match) -> int | None:
    """The index of the root's result that a pattern matches; None for all results."""
    if isinstance(node, AnyOf):
        return _root_index(node.alternatives[match.choices[id(node)]], match)
    return node.index if isinstance(node, ResultNode) else None


Goals = tuple[Any, Any, Any] | None
"""A linked list of goals: a pattern, the value that it must match, and the later goals."""


class Matcher:
    """One attempt to match a pattern at an op."""

    def __init__(
        self,
        pattern: Graph,
        root: Operation,
        *,
        fuel: int = FUEL,
        trace: bool = False,
        assumed: Collection[str] = (),
    ):
        self.match = Match(pattern, root, assumed)
        self.pattern, self.root, self.dialect = pattern, root, pattern.dialect
        self.fuel, self.trace = fuel, trace
        self.failure: Failure | None = None
        self.exhausted = False
        self._trail: list[tuple[dict[Any, Any], Any]] = []

    def run(self) -> Match | None:
        """The first match, or None. If there is none, `exhausted` says whether the fuel ran out, and `failure` has the
        deepest point if the attempt is traced."""
        return self.match if self._root(self.pattern.root) else None

    # ---- search ----------------------------------------------------------------------------------

    def _root(self, node: Any) -> bool:
        if isinstance(node, AnyOf):
            return self._alternatives(node, self._root)
        if isinstance(node, ResultNode):
            count = len(self.root.results)
            if node.index >= count:
                return self._fail(self.root, lambda: f"it has {count} results")
            return self._op(node.node, self.root, None)
        return self._op(node, self.root, None)

    def _solve(self, goals: Goals) -> bool:
        while goals is not None:
            pattern, actual, goals = goals
            self.fuel -= 1
            if self.fuel < 0:
                self.exhausted = True
                return False
            kind = type(pattern)
            if kind is OpNode or kind is ResultNode:
                node, index = (pattern, 0) if kind is OpNode else (pattern.node, pattern.index)
                owner = self._owner(actual, index, node)
                return owner is not None and self._op(node, owner, goals)
            if kind is AnyOf:
                return self._any_of(pattern, actual, goals)
            if not self._leaf(pattern, actual):
                return False
        return self._finish()

    def _owner(self, actual: Any, index: int, node: OpNode) -> Operation | None:
        """The op that produces a value, if a node can match the op."""
        value = actual.ssa if isinstance(actual, Value) else None
        if not isinstance(value, OpResult):
            self._fail(None, lambda: f"an operand is {_described(actual)}, not {node.spec.name}")
            return None
        op = value.op
        if not node.spec.describes(op):
            self._fail(op, lambda: f"it is {op.name}, not {node.spec.name}")
            return None
        if value.index != index:
            self._fail(op, lambda: f"its result {value.index} is used, not result {index}")
            return None
        if op.parent is not self.root.parent:
            self._fail(op, lambda: "it is outside the region of the root")
            return None
        return op

    def _op(self, node: OpNode, op: Operation, goals: Goals) -> bool:
        bound = self.match.nodes.get(id(node))
        if bound is not None:
            return self._solve(goals) if bound is op else self._fail(op, lambda: "it is not the same op as before")
        if not node.spec.describes(op):
            return self._fail(op, lambda: f"it is {op.name}, not {node.spec.name}")
        actuals = self.dialect.arguments_of(op, node.spec)
        for order in orders(node.spec, actuals):
            mark = len(self._trail)
            self._bind(self.match.nodes, id(node), op)
            if op not in self.match.ops:
                self._bind(self.match.ops, op, node)
            pending = self._arguments(node, op, actuals, order)
            if pending is not None:
                later = goals
                for pattern, actual in reversed(pending):
                    later = (pattern, actual, later)
                if self._solve(later):
                    return True
            self._undo(mark)
            if self.exhausted:
                return False
        return False

    def _arguments(
        self, node: OpNode, op: Operation, actuals: Mapping[str, Any], order: Mapping[str, str]
    ) -> list[tuple[Any, Any]] | None:
        """Match the arguments that are no tensors. Return the remaining goals; None if an argument does not match."""
        pending: list[tuple[Any, Any]] = []
        for name, pattern in node.arguments.items():
            if not self._argument(pattern, actuals[order.get(name, name)], op, name, pending):
                return None
        return pending

    def _argument(self, pattern: Any, actual: Any, op: Operation, name: str, pending: list[tuple[Any, Any]]) -> bool:
        if isinstance(pattern, PatternNode):
            pending.append((pattern, actual))
            return True
        if isinstance(pattern, list) and not is_literal(pattern):
            if not isinstance(actual, list | tuple) or len(actual) != len(pattern):
                return self._argument_fails(op, name, actual, pattern)
            return all(self._argument(*pair, op, name, pending) for pair in zip(pattern, actual, strict=True))
        return self._leaf(pattern, actual, op, name)

    def _any_of(self, node: AnyOf, actual: Any, goals: Goals) -> bool:
        if not isinstance(actual, Value):
            return self._fail(None, lambda: f"an operand is {_described(actual)}, not a tensor")
        bound = self.match.values.get(id(node))
        if bound is not None:
            same = bound is actual.ssa
            return self._solve(goals) if same else self._fail(None, lambda: "a shared value is two different ones")
        mark = len(self._trail)
        self._bind(self.match.values, id(node), actual.ssa)
        if self._alternatives(node, lambda alternative: self._solve((alternative, actual, goals))):
            return True
        self._undo(mark)
        return False

    def _alternatives(self, node: AnyOf, matches: Callable[[Any], bool]) -> bool:
        """Whether an alternative matches; the first one that does is bound."""
        for index, alternative in enumerate(node.alternatives):
            mark = len(self._trail)
            self._bind(self.match.choices, id(node), index)
            if node.tag is not None:
                self._bind(self.match.tags, node.tag, node.tags[index])
            if matches(alternative):
                return True
            self._undo(mark)
            if self.exhausted:
                return False
        return False

    def _leaf(self, pattern: Any, actual: Any, op: Operation | None = None, name: str = "") -> bool:
        """Match a capture, a literal or a list of literals, which have no choices."""
        if isinstance(pattern, Capture):
            return self._capture(pattern, actual, op, name)
        if pattern is ANY:
            return True
        if pattern is LAST:
            return _is_last(actual, op) or self._argument_fails(op, name, actual, pattern)
        if isinstance(pattern, AnyValue):
            return isinstance(actual, Value) or self._argument_fails(op, name, actual, pattern)
        if isinstance(pattern, Number):
            good = isinstance(actual, Value) and constant_equals(actual.ssa, pattern.literal)
            return good or self._argument_fails(op, name, actual, pattern)
        if isinstance(pattern, Attr):
            if id(pattern) in self.match.attributes:
                good = same_literal(self.match.attributes[id(pattern)], actual)
                return good or self._argument_fails(op, name, actual, self.match.attributes[id(pattern)])
            self._bind(self.match.attributes, id(pattern), actual)
            return True
        return same_literal(pattern, actual) or self._argument_fails(op, name, actual, pattern)

    def _capture(self, pattern: Capture, actual: Any, op: Operation | None, name: str) -> bool:
        if not isinstance(actual, Value):
            return self._argument_fails(op, name, actual, pattern)
        bound = self.match.values.get(id(pattern))
        if isinstance(pattern, Const):
            values = unread_values(actual.ssa)
            if values is None:
                return self._fail(op, lambda: f"{pattern} is {_described(actual)}, not an inline constant")
            if bound is not None and bound is not actual.ssa:
                before = unread_values(bound)
                same = bound.type == actual.ssa.type and before is not None and before.tobytes() == values.tobytes()
                return same or self._fail(op, lambda: f"{pattern} is two different constants")
        if bound is None:
            self._bind(self.match.values, id(pattern), actual.ssa)
            return True
        return bound is actual.ssa or self._fail(op, lambda: f"{pattern} is two different values")

    # ---- the end of the search -------------------------------------------------------------------

    def _finish(self) -> bool:
        return self._nothing_escapes() and all(self._holds(condition) for condition in self.pattern.conditions)

    def _nothing_escapes(self) -> bool:
        match = self.match
        index = _root_index(self.pattern.root, match)
        if index is None and len(match.ops) == 1:
            return True
        for op, node in match.ops.items():
            if node.escapes:
                continue
            for result in op.results:
                if op is self.root and index in (None, result.index):
                    continue
                user = self._user_outside(result)
                # a captured value remains as an input of the target, so it may have other uses
                if user is not None and not self._is_captured(result):
                    return self._fail(op, _used_by(user), Phase.USES)
        return True

    def _user_outside(self, result: SSAValue) -> Operation | None:
        matched = self.match.ops
        return next((use.operation for use in result.uses if use.operation not in matched), None)

    def _is_captured(self, result: SSAValue) -> bool:
        values = self.match.values
        return any(values.get(id(capture)) is result for capture in self.pattern.captures.values())

    def _holds(self, condition: Expression) -> bool:
        try:
            if condition.evaluate(self.match):
                return True
        except Undefined as undefined:
            reason = str(undefined)
            return self._fail(
                self.root, lambda: f"condition `{condition.text}` cannot hold: {reason}", Phase.CONDITIONS
            )
        return self._fail(self.root, lambda: f"condition {quoted(condition, self.match)} is false", Phase.CONDITIONS)

    # ---- bindings and failures -------------------------------------------------------------------

    def _bind(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if key not in table:
            self._trail.append((table, key))
        table[key] = value

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            table, key = self._trail.pop()
            del table[key]

    def _argument_fails(self, op: Operation | None, name: str, actual: Any, pattern: Any) -> bool:
        what = f"argument {name}" if name else "an operand"
        return self._fail(op, lambda: f"{what} is {_described(actual)}, not {_described(pattern)}")

    def _fail(self, op: Operation | None, reason: Callable[[], str], phase: Phase = Phase.STRUCTURE) -> bool:
        if self.trace:
            depth = (len(self.match.ops), phase, len(self.match.values))
            if self.failure is None or depth > self.failure.depth:
                self.failure = Failure(*depth, op, reason())
        return False


_AS_GIVEN: Sequence[Mapping[str, str]] = ({},)


def orders(spec: OpSpec, actuals: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    """The orders of an op's arguments to try: as given, and swapped if the op commutes."""
    if spec.commutative is None or not commutes(spec, actuals):
        return _AS_GIVEN
    first, second = spec.commutative
    return ({},) if actuals[first] == actuals[second] else ({}, {first: second, second: first})


def commutes(spec: OpSpec, actuals: Mapping[str, Any]) -> bool:
    """Whether the two commutative arguments of an op may change places, given the others."""
    return all(same_literal(value, actuals[name]) for name, value in spec.commutes_when)


def is_literal(pattern: Any) -> bool:
    """Whether an argument's pattern is a Python value, with no capture or `ANY` in it."""
    if isinstance(pattern, list):
        return all(map(is_literal, pattern))
    return pattern is not ANY and pattern is not LAST and not isinstance(pattern, PatternNode | Attr)


def _is_last(axis: Any, op: Operation | None) -> bool:
    """Whether an argument is the last axis of the op's result."""
    rank = Value(op.results[0]).rank if op is not None else 0
    return type(axis) is int and axis in (-1, rank - 1) and rank > 0


def same_literal(literal: Any, actual: Any) -> bool:
    """Whether an argument equals a literal. Lists are compared by element; `True` is not `1`, but `1` is `1.0`."""
    kind = type(literal)
    if kind is type(actual) and kind in (str, int, bool):  # most literals
        return bool(literal == actual)
    if isinstance(literal, list | tuple):
        return (
            isinstance(actual, list | tuple)
            and len(actual) == len(literal)
            and all(same_literal(*pair) for pair in zip(literal, actual, strict=True))
        )
    if isinstance(literal, bool) or isinstance(actual, bool):
        return literal is actual
    if isinstance(literal, int | float | str | Attribute | Value) or literal is None:
        return (
            type(actual) in (int, float) and literal == actual if type(literal) in (int, float) else literal == actual
        )
    raise RuleError(f"{literal!r} cannot be compared with an argument")


def _used_by(user: Operation) -> Callable[[], str]:
    return lambda: f"its value is also used outside the match, by {user.name}"


def quoted(condition: Expression, match: Match) -> str:
    """The text of a false condition and the values that it read: `` `w.rank == 1` (w.rank is 2) ``."""
    if isinstance(condition, Both):
        for part in condition.parts:
            if not part.evaluate(match):
                return quoted(part, match)
    seen = dict.fromkeys(_read(condition, match))
    return f"`{condition.text}`" + (f" ({', '.join(seen)})" if seen else "")


def _read(condition: Expression, match: Match) -> Iterator[str]:
    for leaf in condition.leaves():
        if isinstance(leaf, PythonValue | Binary):
            continue
        try:
            yield f"{leaf.text} is {leaf.evaluate(match)!r}"
        except Undefined as reason:
            yield str(reason)


def _described(actual: Any) -> str:
    if isinstance(actual, Value):
        hint = actual.ssa.name_hint
        kind = "an argument" if actual.maker is None else actual.maker.name
        return f"{kind} (%{hint})" if hint else kind
    if isinstance(actual, list | tuple):
        return f"[{', '.join(map(_described, actual))}]"
    return str(actual) if isinstance(actual, PatternNode) else repr(actual)

"""Which rules can match at an op: a bottom-up tree automaton, made on demand over all rules at once.

The state of an op is the set of pattern nodes, of all rules, that match at it as far as op names,
literals and operands tell. It depends only on the op's name, the properties that some rule tests, and
the states of its operands, so a table remembers it: one lookup an op, however many rules there are.
States over-approximate: captures that must be equal, uses and conditions are left to the matcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from patcomp.ir.constants import constant_equals, constant_values, is_constant
from patcomp.ir.namespaces import DialectInterface
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Operation, OpResult
from patcomp.patterns.language import ANY, LAST, AnyOf, Attr, Const, Number, OpNode, PatternNode, ResultNode
from patcomp.patterns.match import orders, same_literal
from patcomp.patterns.rule import Rule
from patcomp.patterns.stage import Stage

WILD = ("wild",)
"""The test that everything passes. Tests are nested tuples, so that equal ones of two rules are one."""


@dataclass(frozen=True, eq=False)
class _OpTest:
    """A pattern node as the automaton sees it."""

    number: int
    node: OpNode
    arguments: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class _State:
    """The set of tests that hold at an op, and the rules to try there."""

    number: int
    tests: frozenset[int]
    rules: tuple[Rule, ...]


@dataclass
class _Plan:
    """What the state of an op of one name depends on."""

    tests: list[_OpTest] = field(default_factory=list)
    tested: dict[str, None] = field(default_factory=dict)
    """Properties whose value some rule tests."""
    structural: dict[str, None] = field(default_factory=dict)
    """Other properties in which operands may stand: only how many counts."""
    rules: list[Rule] = field(default_factory=list)
    """Rules that take every op of the name."""
    dialect: DialectInterface | None = None


class Index:
    """The automaton of a set of rules. Its tables grow with the states that occur, once for each."""

    def __init__(self, rules: Iterable[Rule]):
        self._plans: dict[str, _Plan] = {}
        self._tests: dict[int, tuple[PatternNode, Any]] = {}
        self._op_tests: dict[Any, int] = {}
        self._constant_tests: dict[Any, int] = {}
        self._literals: dict[Any, Any] = {}
        self._accepts: dict[int, list[Rule]] = {}
        self._order: dict[int, tuple[int, int, int]] = {}
        self._numbers = 0
        for position, rule in enumerate(rule for rule in rules if rule.stage is not Stage.IMPORT):
            self._order[id(rule)] = (-rule.priority, -rule.size, position)
            pattern = rule.pattern
            for test in self._alternatives(self._test(pattern.root, pattern.dialect)) if pattern else ():
                self._accepts.setdefault(test[1], []).append(rule)
            for name in rule.ops if pattern is None else ():
                self._plans.setdefault(name, _Plan()).rules.append(rule)
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._none = _State(0, frozenset(), ())
        self._by_key: dict[Any, _State] = {}
        self._by_constant: dict[Attribute, _State] = {}
        self._property_numbers: dict[Attribute, int] = {}

    # ---- rules to tests --------------------------------------------------------------------------

    def _test(self, pattern: Any, dialect: DialectInterface) -> Any:
        if not isinstance(pattern, OpNode | AnyOf):
            return self._new_test(pattern, dialect)
        # nodes are shared: a pattern with many alternatives has far more paths than nodes
        if id(pattern) not in self._tests:
            self._tests[id(pattern)] = (pattern, self._new_test(pattern, dialect))
        return self._tests[id(pattern)][1]

    def _new_test(self, pattern: Any, dialect: DialectInterface) -> Any:
        if isinstance(pattern, OpNode | ResultNode):
            node, index = (pattern, 0) if isinstance(pattern, OpNode) else (pattern.node, pattern.index)
            return ("op", self._op_test(node, dialect), index)
        if isinstance(pattern, AnyOf):
            tests = tuple(dict.fromkeys(self._test(alternative, dialect) for alternative in pattern.alternatives))
            return WILD if WILD in tests else tests[0] if len(tests) == 1 else ("or", tests)
        if isinstance(pattern, Const | Number):
            literal = pattern.literal if isinstance(pattern, Number) else ANY
            key = (type(literal).__name__, repr(literal))
            self._literals[key] = literal
            return ("constant", self._constant_tests.setdefault(key, self._next(key, self._constant_tests)))
        if isinstance(pattern, list):
            return ("list", tuple(self._test(item, dialect) for item in pattern))
        if pattern is ANY or pattern is LAST or isinstance(pattern, PatternNode | Attr):
            return WILD
        key = (type(pattern).__name__, repr(pattern))
        self._literals[key] = pattern
        return ("literal", key)

    def _next(self, key: Any, table: Mapping[Any, int]) -> int:
        if key not in table:
            self._numbers += 1
        return self._numbers

    def _op_test(self, node: OpNode, dialect: DialectInterface) -> int:
        arguments = tuple(
            (name, WILD if node.spec.argument(name).kind == "element type" else self._test(pattern, dialect))
            for name, pattern in node.arguments.items()
        )
        key = (dialect.name, node.spec.name, arguments)
        if key not in self._op_tests:
            self._op_tests[key] = self._next(key, self._op_tests)
            plan = self._plans.setdefault(node.spec.op_name, _Plan())
            plan.dialect = dialect
            plan.tests.append(_OpTest(self._op_tests[key], node, arguments))
            if node.spec.composite is not None:
                plan.tested |= dict.fromkeys(("declaration", "options", "recover"))
                return self._op_tests[key]
            tested = dict(node.spec.commutes_when)
            for name, test in arguments:
                kind = node.spec.argument(name).kind
                if kind in ("attribute", "mixed") and (test != WILD or name in tested):
                    plan.tested[name] = None
            for argument in node.spec.arguments:
                if argument.kind in ("mixed", "values") or (argument.optional and argument.kind == "value"):
                    plan.structural[argument.name] = None
        return self._op_tests[key]

    def _alternatives(self, test: Any) -> Iterable[Any]:
        if test[0] == "or":
            for inner in test[1]:
                yield from self._alternatives(inner)
        else:
            yield test

    @property
    def transitions(self) -> int:
        """How many entries the table has: it grows with the variety of ops, not with their number."""
        return len(self._by_key)

    # ---- states ----------------------------------------------------------------------------------

    def sweep(self) -> Sweep:
        """A table of the states of ops, for as long as the ops live."""
        return Sweep(self)

    def _state(self, tests: frozenset[int], name: str) -> _State:
        state = self._states.get((tests, name))
        if state is None:
            found: dict[int, Rule] = {}
            for test in tests:
                found.update((id(rule), rule) for rule in self._accepts.get(test, ()))
            plan = self._plans.get(name)
            found.update((id(rule), rule) for rule in (plan.rules if plan else ()))
            rules = tuple(sorted(found.values(), key=lambda rule: self._order[id(rule)]))
            state = self._states[tests, name] = _State(len(self._states) + 1, tests, rules)
        return state

    def _constant_state(self, op: Operation) -> _State:
        """The state of a constant: the literals that it equals."""
        attribute = op.properties["value"]
        state = self._by_constant.get(attribute)
        if state is None:
            value = op.results[0]
            if constant_values(value) is None:
                return self._none  # a weight: no rule looks at its values
            tests = frozenset(
                number
                for key, number in self._constant_tests.items()
                if self._literals[key] is ANY or constant_equals(value, self._literals[key])
            )
            state = self._by_constant[attribute] = self._state(tests, op.name)
        return state

    def _compute(self, op: Operation, plan: _Plan, sweep: Sweep) -> _State:
        """The state of an op, by trying every test of its name."""
        if plan.dialect is None:
            return self._state(frozenset(), op.name)
        # ops of one name have one description, but for the calls of composites
        specs = {id(spec): spec for spec in (test.node.spec for test in plan.tests)}
        arguments = {key: plan.dialect.arguments_of(op, spec) for key, spec in specs.items() if spec.describes(op)}
        held = frozenset(
            test.number
            for test in plan.tests
            if id(test.node.spec) in arguments and self._holds(test, arguments[id(test.node.spec)], sweep)
        )
        return self._state(held, op.name)

    def _holds(self, test: _OpTest, arguments: Mapping[str, Any], sweep: Sweep) -> bool:
        return any(
            all(self._passes(inner, arguments[order.get(name, name)], sweep) for name, inner in test.arguments)
            for order in orders(test.node.spec, arguments)
        )

    def _passes(self, test: Any, actual: Any, sweep: Sweep) -> bool:
        kind = test[0]
        if kind == "wild":
            return True
        if kind == "op":
            return isinstance(actual, Value) and _result_index(actual) == test[2] and test[1] in sweep.tests(actual)
        if kind == "constant":
            return isinstance(actual, Value) and test[1] in sweep.tests(actual)
        if kind == "or":
            return any(self._passes(inner, actual, sweep) for inner in test[1])
        if kind == "list":
            return (
                isinstance(actual, list | tuple)
                and len(actual) == len(test[1])
                and all(self._passes(*pair, sweep) for pair in zip(test[1], actual, strict=True))
            )
        return same_literal(self._literals[test[1]], actual)


def _result_index(value: Value) -> int:
    return value.ssa.index if isinstance(value.ssa, OpResult) else -1


class Sweep:
    """The states of the ops of one module while it is being rewritten."""

    def __init__(self, index: Index):
        self._index = index
        self._states: dict[int, _State] = {}
        self._properties: dict[int, tuple[Attribute, int]] = {}
        self._structures: dict[int, tuple[Attribute, int]] = {}
        self._constants: dict[int, tuple[Attribute, _State]] = {}

    def tests(self, value: Value) -> frozenset[int]:
        """The tests that hold at the op that makes a value."""
        state = self._below(value.ssa.op) if isinstance(value.ssa, OpResult) else None
        return state.tests if state is not None else frozenset()

    def _below(self, op: Operation) -> _State | None:
        """The state of the op that makes an operand; a constant gets its own when a rule first looks at a user."""
        state = self._states.get(id(op))
        if state is None and is_constant(op) and self._index._constant_tests:
            state = self._states[id(op)] = self._constant(op)
        return state

    def forget(self, op: Operation) -> None:
        """Drops the state of an op that is about to be erased."""
        self._states.pop(id(op), None)

    def visit(self, op: Operation) -> tuple[Rule, ...]:
        """Computes the state of an op whose operands have theirs; the rules to try there, best first."""
        index = self._index
        plan = index._plans.get(op.name)
        if plan is None:
            return ()
        if not plan.tests:
            # no rule looks below this op: its procedural rules are all there is to know
            state = self._states[id(op)] = index._state(frozenset(), op.name)
            return state.rules
        states = self._states
        key: list[Any] = [op.name]
        for operand in op.operands:
            if isinstance(operand, OpResult):
                state_below = self._below(operand.op)
                key += (-1, 0) if state_below is None else (state_below.number, operand.index)
            else:
                key += (-1, 0)
        properties = op.properties
        for name in plan.tested:
            attribute = properties.get(name)
            key.append(-1 if attribute is None else self._number(attribute))
        for name in plan.structural:
            attribute = properties.get(name)
            key.append(-1 if attribute is None else self._structure(attribute, plan))
        remembered = tuple(key)
        found = index._by_key.get(remembered)
        if found is None:
            found = index._by_key[remembered] = index._compute(op, plan, self)
        states[id(op)] = found
        return found.rules

    def _constant(self, op: Operation) -> _State:
        attribute = op.properties["value"]
        known = self._constants.get(id(attribute))
        if known is None:
            known = self._constants[id(attribute)] = (attribute, self._index._constant_state(op))
        return known[1]

    def _number(self, attribute: Attribute) -> int:
        known = self._properties.get(id(attribute))
        if known is None:
            number = self._index._property_numbers.setdefault(attribute, len(self._index._property_numbers))
            known = self._properties[id(attribute)] = (attribute, number)
        return known[1]

    def _structure(self, attribute: Attribute, plan: _Plan) -> int:
        known = self._structures.get(id(attribute))
        if known is None:
            assert plan.dialect is not None
            known = self._structures[id(attribute)] = (attribute, plan.dialect.operands_in(attribute))
        return known[1]

"""Find the rules that can match at an op, with one bottom-up tree automaton for all rules. It is built on demand.

The state of an op is the set of the pattern nodes, of all rules, whose op names, literals and operands match there. It
depends only on the op's name, on the properties that some rule tests, on where operands stand inside other properties,
and on the states of the operands. A table remembers it, so each op needs one lookup, however many rules there are. A
state may contain nodes that do not match: the matcher checks equal captures, uses and conditions.

Most tries in vain are of small patterns, such as `transpose(x, p)` where p keeps the order, and of formulas, whose
conditions tell them from formulas of the same op. Types, properties and constants of the op decide about these
(`Pattern.is_local`, `Formula.refutes`), so a second table remembers which of them may match.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from patcomp.ir.constants import all_equal, as_element, is_constant, unread_values
from patcomp.ir.namespaces import DialectInterface, OpSpec
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Operation, OpResult, TensorType
from patcomp.patterns.formula import Formula
from patcomp.patterns.language import ANY, LAST, AnyOf, Attr, Capture, Const, Number, OpNode, PatternNode, ResultNode
from patcomp.patterns.match import Matcher, orders, same_literal
from patcomp.patterns.rule import Rule
from patcomp.patterns.stage import Stage

LIMIT = 50_000
"""How many entries a table of an index may have between conversions. A process that converts many models would fill it
without end."""


class _Test(ABC):
    """What an argument of an op must be. Equal tests of two rules are one."""

    @abstractmethod
    def passes(self, actual: Any, sweep: Sweep) -> bool:
        """Whether an argument is as the test says, as far as the states of the ops tell."""


@dataclass(frozen=True)
class _Anything(_Test):
    def passes(self, actual: Any, sweep: Sweep) -> bool:
        return True


@dataclass(frozen=True)
class _Result(_Test):
    """One result of an op in whose state a test is."""

    test: int
    index: int

    def passes(self, actual: Any, sweep: Sweep) -> bool:
        ssa = actual.ssa if isinstance(actual, Value) else None
        return isinstance(ssa, OpResult) and ssa.index == self.index and self.test in sweep.tests(ssa)


@dataclass(frozen=True)
class _Constant(_Test):
    """A constant in whose state a test is."""

    test: int

    def passes(self, actual: Any, sweep: Sweep) -> bool:
        ssa = actual.ssa if isinstance(actual, Value) else None
        return isinstance(ssa, OpResult) and self.test in sweep.tests(ssa)


@dataclass(frozen=True)
class _Either(_Test):
    tests: tuple[_Test, ...]

    def passes(self, actual: Any, sweep: Sweep) -> bool:
        return any(test.passes(actual, sweep) for test in self.tests)


@dataclass(frozen=True)
class _Items(_Test):
    """A list with a test for each item."""

    tests: tuple[_Test, ...]

    def passes(self, actual: Any, sweep: Sweep) -> bool:
        return (
            isinstance(actual, list | tuple)
            and len(actual) == len(self.tests)
            and all(test.passes(item, sweep) for test, item in zip(self.tests, actual, strict=True))
        )


@dataclass(frozen=True)
class _Literal(_Test):
    """A Python value. `True`, `1` and `1.0` are different literals, so literals are compared by their text."""

    text: str
    value: Any = field(compare=False)

    def passes(self, actual: Any, sweep: Sweep) -> bool:
        return same_literal(self.value, actual)


_ANYTHING = _Anything()
_NO_TESTS: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class _OpTest:
    """A pattern node of the automaton."""

    number: int
    node: OpNode
    arguments: tuple[tuple[str, _Test], ...]
    """The tests of the arguments, without those that everything passes."""


@dataclass(frozen=True, eq=False)
class _State:
    """The tests that hold at an op, and the rules to try there."""

    number: int
    tests: frozenset[int]
    rules: tuple[Rule, ...]

    @cached_property
    def has_local(self) -> bool:
        """Whether types, properties and constants alone refute some of the rules."""
        return any(map(_is_local, self.rules))


@dataclass
class _Plan:
    """The tests of the ops of one name, and what their states depend on."""

    tests: list[_OpTest] = field(default_factory=list)
    tested: dict[str, None] = field(default_factory=dict)
    """The properties whose value some rule tests."""
    structural: dict[str, None] = field(default_factory=dict)
    """Other properties that may contain operands. A state depends only on where these stand."""
    rules: list[Rule] = field(default_factory=list)
    """The rules that can start from every op of the name."""
    dialect: DialectInterface | None = None


class Index:
    """The automaton of a set of rules. A state is computed when it first occurs."""

    def __init__(self, rules: Iterable[Rule]):
        self._plans: dict[str, _Plan] = {}
        self._tests: dict[int, tuple[PatternNode, _Test]] = {}
        self._op_tests: dict[Any, int] = {}
        self._constant_tests: dict[_Literal, int] = {}
        self._accepts: dict[int, list[Rule]] = {}
        self._order: dict[int, tuple[int, int, int]] = {}
        self._numbers = itertools.count(1)
        for position, rule in enumerate(rule for rule in rules if rule.stage is not Stage.DECOMPOSE):
            self._order[id(rule)] = (-rule.priority, -rule.size, position)
            pattern = rule.pattern
            for test in _roots(self._test(pattern.root, pattern.dialect)) if pattern else ():
                self._accepts.setdefault(test.test, []).append(rule)
            for name in rule.ops if pattern is None else ():
                self._plans.setdefault(name, _Plan()).rules.append(rule)
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._none = _State(0, frozenset(), ())
        self._by_key: dict[Any, _State] = {}
        self._by_facts: dict[Any, tuple[Rule, ...]] = {}
        self._by_constant: dict[Attribute, _State] = {}
        self._literals: dict[Attribute, list[tuple[int, np.ndarray | None]]] = {}
        self._property_numbers: dict[Attribute, int] = {}

    # ---- rules to tests --------------------------------------------------------------------------

    def _test(self, pattern: Any, dialect: DialectInterface) -> _Test:
        kind = type(pattern)
        if kind is Capture or pattern is ANY:
            return _ANYTHING
        if kind is not OpNode and kind is not AnyOf:
            return self._new_test(pattern, dialect)
        # nodes are shared: a pattern with many alternatives has far more paths than nodes
        if id(pattern) not in self._tests:
            self._tests[id(pattern)] = (pattern, self._new_test(pattern, dialect))
        return self._tests[id(pattern)][1]

    def _new_test(self, pattern: Any, dialect: DialectInterface) -> _Test:
        if isinstance(pattern, OpNode | ResultNode):
            node, index = (pattern, 0) if isinstance(pattern, OpNode) else (pattern.node, pattern.index)
            return _Result(self._op_test(node, dialect), index)
        if isinstance(pattern, AnyOf):
            tests = tuple(dict.fromkeys(self._test(alternative, dialect) for alternative in pattern.alternatives))
            return _ANYTHING if _ANYTHING in tests else tests[0] if len(tests) == 1 else _Either(tests)
        if isinstance(pattern, Const | Number):
            literal = _literal(pattern.literal if isinstance(pattern, Number) else ANY)
            if literal not in self._constant_tests:
                self._constant_tests[literal] = next(self._numbers)
            return _Constant(self._constant_tests[literal])
        if isinstance(pattern, list):
            return _Items(tuple(self._test(item, dialect) for item in pattern))
        if pattern is LAST or isinstance(pattern, PatternNode | Attr):
            return _ANYTHING
        return _literal(pattern)

    def _op_test(self, node: OpNode, dialect: DialectInterface) -> int:
        spec = node.spec
        tests = [(name, self._test(pattern, dialect)) for name, pattern in node.arguments.items()]
        arguments = tuple(
            [
                (name, test)
                for name, test in tests
                if test is not _ANYTHING and spec.argument(name).kind != "element type"
            ]
        )
        key = (dialect.name, spec.name, arguments)
        number = self._op_tests.get(key)
        if number is None:
            number = self._op_tests[key] = next(self._numbers)
            plan = self._plans.setdefault(spec.op_name, _Plan())
            plan.dialect = dialect
            plan.tests.append(_OpTest(number, node, arguments))
            if spec.composite is not None:
                plan.tested |= dict.fromkeys(("declaration", "options", "recover"))
                return number
            for name in (*(name for name, _ in arguments), *(name for name, _ in spec.commutes_when)):
                if spec.argument(name).kind in ("attribute", "mixed"):
                    plan.tested[name] = None
            for argument in spec.arguments:
                if argument.kind in ("mixed", "values") or (argument.optional and argument.kind == "value"):
                    plan.structural[argument.name] = None
        return number

    @property
    def transitions(self) -> int:
        """The number of entries of the table, which grows with the variety of ops, not with their number."""
        return len(self._by_key)

    # ---- states ----------------------------------------------------------------------------------

    def sweep(self) -> Sweep:
        """An empty table of the states of ops. It must not outlive the ops."""
        tables: list[dict[Any, Any]] = [self._by_key, self._by_facts, self._by_constant, self._property_numbers]
        if any(len(table) > LIMIT for table in tables):
            for table in tables:
                table.clear()
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
            # another thread may make the same state: the first one counts, and numbers are never given twice
            state = self._states.setdefault((tests, name), _State(next(self._numbers), tests, rules))
        return state

    def _constant_state(self, op: Operation) -> _State:
        """The state of a constant: the literals that it equals."""
        attribute = op.properties["value"]
        state = self._by_constant.get(attribute)
        if state is None:
            value = op.results[0]
            values = unread_values(value)
            if values is None or not isinstance(value.type, TensorType):
                return self._none  # no rule reads the values of a weight
            literals = self._literals_of(value.type.element_type)
            held = [number for number, wanted in literals if wanted is None or all_equal(values, wanted)]
            state = self._by_constant[attribute] = self._state(frozenset(held), op.name)
        return state

    def _literals_of(self, element: Attribute) -> list[tuple[int, np.ndarray | None]]:
        """The tests that a constant of this element type may pass, each with the wanted value (None for any value)."""
        known = self._literals.get(element)
        if known is None:
            asked = [(number, literal.value) for literal, number in self._constant_tests.items()]
            arrays = [(number, as_element(value, element)) for number, value in asked if value is not ANY]
            known = [(number, None) for number, value in asked if value is ANY]
            known += [(number, array) for number, array in arrays if array is not None]
            self._literals[element] = known
        return known

    def _compute(self, op: Operation, plan: _Plan, sweep: Sweep) -> _State:
        """The state of an op, by trying every test of its name."""
        if plan.dialect is None:
            return self._state(frozenset(), op.name)
        # ops of one name have one description, except for the calls of composites
        given: dict[int, list[Mapping[str, Any]]] = {}
        held = []
        for test in plan.tests:
            spec = test.node.spec
            orders_of_arguments = given.get(id(spec))
            if orders_of_arguments is None:
                orders_of_arguments = given[id(spec)] = _given(op, spec, plan.dialect)
            if any(_passes(test, arguments, sweep) for arguments in orders_of_arguments):
                held.append(test.number)
        return self._state(frozenset(held), op.name)


def _given(op: Operation, spec: OpSpec, dialect: DialectInterface) -> list[Mapping[str, Any]]:
    """The arguments of an op by name, in each order that counts as the same; none if the op is another one."""
    if not spec.describes(op):
        return []
    arguments = dialect.arguments_of(op, spec)
    return [
        {**arguments, **{name: arguments[other] for name, other in order.items()}} if order else arguments
        for order in orders(spec, arguments)
    ]


def _passes(test: _OpTest, arguments: Mapping[str, Any], sweep: Sweep) -> bool:
    for name, inner in test.arguments:  # noqa: SIM110  # a generator would take longer than most tests
        if not inner.passes(arguments[name], sweep):
            return False
    return True


def _literal(value: Any) -> _Literal:
    return _Literal(f"{type(value).__name__} {value!r}", value)


def _roots(test: _Test) -> Iterator[_Result]:
    """The tests of the ops that a pattern can start from."""
    if isinstance(test, _Either):
        for inner in test.tests:
            yield from _roots(inner)
    elif isinstance(test, _Result):
        yield test


def _is_local(rule: Rule) -> bool:
    """Whether types, properties and constants of an op may refute a rule."""
    if isinstance(rule.function, Formula):
        return rule.composite is None and bool(rule.function.conditions)
    return rule.is_declarative and rule.graph.is_local


def _refutes(rule: Rule, op: Operation) -> bool:
    """Whether an op has types, properties or constants that prevent every match of a rule."""
    if not _is_local(rule):
        return False
    if isinstance(rule.function, Formula):
        return rule.function.refutes(op)
    try:
        return Matcher(rule.graph, op).run() is None
    except Exception:  # its condition is broken; this is reported where the rule is tried
        return False


class Sweep:
    """The states of the ops of one module while it is being rewritten."""

    def __init__(self, index: Index):
        self._index = index
        self._states: dict[int, _State] = {}
        self._properties: dict[int, tuple[Attribute, int]] = {}
        self._structures: dict[int, tuple[Attribute, Any]] = {}
        self._constants: dict[int, tuple[Attribute, _State]] = {}

    def tests(self, value: OpResult) -> frozenset[int]:
        """The numbers of the tests that pass at the op of a value."""
        state = self._below(value.op)
        return state.tests if state is not None else _NO_TESTS

    def _below(self, op: Operation) -> _State | None:
        """The state of the op that produces an operand. The state of a constant is computed here, when a user needs
        it."""
        state = self._states.get(id(op))
        if state is None and is_constant(op) and self._index._constant_tests:
            state = self._states[id(op)] = self._constant(op)
        return state

    def forget(self, op: Operation) -> None:
        """Drops the state of an op that is about to be erased."""
        self._states.pop(id(op), None)

    def visit(self, op: Operation) -> tuple[Rule, ...]:
        """Compute the state of an op; the states of its operands are known. Return the rules to try there, best
        first."""
        index = self._index
        plan = index._plans.get(op.name)
        if plan is None:
            return ()
        if not plan.tests:
            # no pattern contains this op, so that only procedural rules can start from it
            state = self._states[id(op)] = index._state(frozenset(), op.name)
            return self._unrefuted(op, state) if state.has_local else state.rules
        states = self._states
        key: list[Any] = [op.name]
        for operand in op.operands:
            below, index_below = None, 0
            if isinstance(operand, OpResult):
                below, index_below = states.get(id(operand.op)) or self._below(operand.op), operand.index
            key += (-1, 0) if below is None else (below.number, index_below)
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
        return self._unrefuted(op, found) if found.has_local else found.rules

    def _unrefuted(self, op: Operation, state: _State) -> tuple[Rule, ...]:
        """The rules of a state without the local ones that do not match the op. All ops with the same types, properties
        and constant operands share the answer."""
        values = {operand: position for position, operand in enumerate(op.operands)}
        key: list[Any] = [state.number]
        for value in values:
            maker = value.op if isinstance(value, OpResult) and is_constant(value) else None
            key.append(self._number(value.type))
            key.append(-1 if maker is None else self._number(maker.properties["value"]))
        key += map(values.__getitem__, op.operands)
        key += [self._number(result.type) for result in op.results]
        for name, attribute in op.properties.items():
            key += (name, self._number(attribute))
        remembered = tuple(key)
        rules = self._index._by_facts.get(remembered)
        if rules is None:
            rules = self._index._by_facts[remembered] = tuple(rule for rule in state.rules if not _refutes(rule, op))
        return rules

    def _constant(self, op: Operation) -> _State:
        attribute = op.properties["value"]
        known = self._constants.get(id(attribute))
        if known is None:
            known = self._constants[id(attribute)] = (attribute, self._index._constant_state(op))
        return known[1]

    def _number(self, attribute: Attribute) -> int:
        known = self._properties.get(id(attribute))
        if known is None:
            number = self._index._property_numbers.setdefault(attribute, next(self._index._numbers))
            known = self._properties[id(attribute)] = (attribute, number)
        return known[1]

    def _structure(self, attribute: Attribute, plan: _Plan) -> Any:
        known = self._structures.get(id(attribute))
        if known is None:
            assert plan.dialect is not None
            known = self._structures[id(attribute)] = (attribute, plan.dialect.structure(attribute))
        return known[1]

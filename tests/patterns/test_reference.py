"""The matcher and the index against a naive matcher, on random graphs and random patterns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, Attr, Const, Index, Rewrite, Rule, RuleSet, Stage, any_of, run
from patcomp.patterns.language import AnyOf, AnyValue, Capture, Number, OpNode, ResultNode, SourceNamespace
from patcomp.patterns.match import Matcher
from patcomp.patterns.pattern import Pattern, pattern_nodes
from tests.helpers.thorough import examples
from tests.patterns.graphs import MATRIX, Graph, declare

# ---- the naive matcher: every alternative and every operand order in turn, no search ---------------


def naive_match(rule: Rule, root: Operation) -> bool:
    """Whether a rule matches, by brute force."""
    nodes = rule.graph.nodes
    choices = [node for node in nodes if isinstance(node, AnyOf)]
    commutative = [node for node in nodes if isinstance(node, OpNode) and node.spec.commutative]
    for picks in itertools.product(*(range(len(node.alternatives)) for node in choices)):
        taken = {id(node): pick for node, pick in zip(choices, picks, strict=True)}
        for swaps in itertools.product((False, True), repeat=len(commutative)):
            swapped = {id(node) for node, swap in zip(commutative, swaps, strict=True) if swap}
            if _Naive(rule, taken, swapped).matches(root):
                return True
    return False


class _Naive:
    def __init__(self, rule: Rule, taken: dict[int, int], swapped: set[int]):
        self.rule, self.taken, self.swapped = rule, taken, swapped
        self.bound: dict[int, Any] = {}
        self.ops: dict[Operation, OpNode] = {}

    def matches(self, root: Operation) -> bool:
        node = self.rule.graph.root
        while isinstance(node, AnyOf):
            node = node.alternatives[self.taken[id(node)]]
        index = node.index if isinstance(node, ResultNode) else None
        op_node = node.node if isinstance(node, ResultNode) else node
        if not self.op(op_node, root):
            return False
        captured = [self.bound.get(id(capture)) for capture in self.rule.graph.captures.values()]
        for op in self.ops:
            if self.ops[op].escapes:
                continue
            for result in op.results:
                if (op is root and index in (None, result.index)) or Value(result) in captured:
                    continue
                if any(use.operation not in self.ops for use in result.uses):
                    return False
        return True

    def op(self, node: OpNode, op: Operation) -> bool:
        if op.name != node.spec.name or self.bound.setdefault(id(node), op) is not op:
            return False
        self.ops[op] = node
        actuals = dict(aten_namespace.arguments(op))
        if id(node) in self.swapped:
            if node.spec.name == "aten.add.Tensor" and actuals["alpha"] != 1:
                return False
            actuals["self"], actuals["other"] = actuals["other"], actuals["self"]
        return all(self.argument(pattern, actuals[name]) for name, pattern in node.arguments.items())

    def argument(self, pattern: Any, actual: Any) -> bool:
        if pattern is ANY:
            return True
        if isinstance(pattern, list):
            return (
                isinstance(actual, list)
                and len(actual) == len(pattern)
                and all(self.argument(*pair) for pair in zip(pattern, actual, strict=True))
            )
        if isinstance(pattern, Attr):
            return self.bound.setdefault(id(pattern), actual) == actual
        if isinstance(pattern, Number | Const):
            values = actual.constant if isinstance(actual, Value) else None
            if values is None:
                return False
            if isinstance(pattern, Const):
                return bool((self.bound.setdefault(id(pattern), actual).constant == values).all())
            return bool((values == pattern.literal).all())
        if isinstance(pattern, AnyValue):
            return isinstance(actual, Value)
        if isinstance(pattern, Capture):
            return isinstance(actual, Value) and self.bound.setdefault(id(pattern), actual) == actual
        if isinstance(pattern, AnyOf):
            same = self.bound.setdefault(id(pattern), actual) == actual
            return same and self.argument(pattern.alternatives[self.taken[id(pattern)]], actual)
        if isinstance(pattern, OpNode | ResultNode):
            node, index = (pattern, 0) if isinstance(pattern, OpNode) else (pattern.node, pattern.index)
            owner = actual.ssa.owner if isinstance(actual, Value) else None
            return isinstance(owner, Operation) and actual.ssa.index == index and self.op(node, owner)
        return type(pattern) is type(actual) and pattern == actual


# ---- random graphs and patterns --------------------------------------------------------------------

KINDS = ("neg", "exp", "mul", "add", "scaled", "sub", "permute", "max", "cat", "number")
steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=9
)


def random_graph(plan: list[tuple[str, int, int, int]]) -> Graph:
    """A small graph: each step takes values made before it, recent ones more often."""
    g = Graph()
    values = list(g.inputs)
    for kind, first, second, third in plan:
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        if kind in ("neg", "exp"):
            values.append(getattr(g, kind)(x))
        elif kind in ("mul", "add", "sub"):
            values.append(getattr(g, kind)(x, y))
        elif kind == "scaled":
            values.append(g.add(x, y, alpha=2))
        elif kind == "permute":
            values.append(g.permute(x, dims=[third, 1 - third]))
        elif kind == "max":
            values.extend(g.op("max.dim", x, dim=third, types=[MATRIX, MATRIX]))
        elif kind == "cat":
            values.append(g.cat([x, y][: 1 + third], dim=0))
        else:
            values.append(g.mul(x, float(third)))
    g.use(values[-1])
    for kind, first, second, _ in plan:  # some values are also used where no rule can start
        if kind in ("neg", "max") and second % 3 == 0:
            g.use(values[-1 - first % len(values)])
    return g


def random_rule(plan: list[tuple[str, int, int, int]], seeds: list[int]) -> Rule:
    """A pattern made like a graph, out of captures, numbers and alternatives."""

    def build(a: Any, c: Any, x: Any, y: Any, k: Const, d: Attr) -> Rewrite:
        nodes: list[Any] = [y, x]
        last: Any = None
        for position, (kind, first, second, third) in enumerate(plan):
            seed = seeds[position % len(seeds)]
            p, q = nodes[-1 - first % len(nodes)], nodes[-1 - second % len(nodes)]
            last = _node(a, kind, p, q, third, k, d, seed)
            if seed % 4 == 3 and isinstance(last, OpNode):
                last = a.escaping(last)
            nodes.append(any_of(last, p) if seed % 5 == 0 else any_of(p, last) if seed % 7 == 0 else last)
        return Rewrite(nodes[-1] if isinstance(nodes[-1], OpNode | ResultNode) else last, to=x)

    return _declared_with_what_it_uses(build)


def _node(a: Any, kind: str, p: Any, q: Any, third: int, k: Any, d: Any, seed: int) -> Any:
    if kind in ("neg", "exp"):
        return getattr(a, kind)(p)
    if kind == "mul":
        return a.mul(p, k if seed % 6 == 1 else q)
    if kind in ("add", "scaled"):
        return a.add(p, q, alpha=ANY if seed % 6 == 2 else 2 if kind == "scaled" else 1)
    if kind == "sub":
        return p - q
    if kind == "permute":
        return a.permute(p, dims=[d, ANY] if seed % 2 else [third, 1 - third])
    if kind == "max":
        return a.op("max.dim", p, dim=d if seed % 2 else third, keepdim=ANY)[seed % 2]
    if kind == "cat":
        return a.cat([p, q][: 1 + third], dim=ANY)
    return p * float(third)


def _declared_with_what_it_uses(build: Any) -> Rule:
    """Declares a rule whose function takes only those captures that its pattern uses."""
    a = SourceNamespace(aten_namespace)
    captures = {"x": Capture("x", a), "y": Capture("y", a), "k": Const("k", a), "d": Attr("d")}
    root = build(a, None, **captures).source
    used = {id(node) for node in pattern_nodes(root)}
    kept = {name: capture for name, capture in captures.items() if id(capture) in used}
    pattern = Pattern(aten_namespace, root, kept)
    target = next(iter(kept.values()))
    return Rule("random", Stage.RECOVER, pattern.root_ops, pattern, target, source="test", size=pattern.size)


def _ops(g: Graph) -> Iterator[Operation]:
    return (op for op in g.block.ops if op.name.startswith("aten."))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(steps, steps, st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_matching_agrees_with_brute_force(graph_plan, rule_plan, seeds):
    g = random_graph(graph_plan)
    rule = random_rule(rule_plan[:5], seeds)
    _agree(g, rule)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(steps, st.integers(0, 8), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_matching_agrees_on_patterns_cut_from_the_graph(plan, start, seeds):
    cut = plan[start % len(plan) :][:5]
    _agree(random_graph(plan), random_rule(cut, seeds))


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(st.lists(steps, min_size=2, max_size=3), st.lists(steps, min_size=2, max_size=4), st.integers(0, 60))
def test_one_index_serves_many_rules_and_graphs(graphs, rules, seed):
    """What the index remembers of one op must not answer for an op that differs in a property or an operand."""
    found = [random_rule(plan[: 1 + place], [seed, place]) for place, plan in enumerate(rules)]
    found += [random_rule(graph[-2:], [seed]) for graph in graphs]
    found = [replace(rule, name=f"random {place}") for place, rule in enumerate(found)]
    index = Index(RuleSet(found))
    for plan in graphs:
        g = random_graph(plan)
        sweep = index.sweep()
        for op in g.block.ops:
            given = sweep.visit(op)
            for rule in found if op.name.startswith("aten.") else ():
                assert not naive_match(rule, op) or rule in given, (str(rule.graph.root), str(op))


def _agree(g: Graph, rule: Rule) -> None:
    index = Index(RuleSet([rule]))
    sweep = index.sweep()
    for op in g.block.ops:
        rules = sweep.visit(op)
        if not op.name.startswith("aten."):
            continue
        expected = naive_match(rule, op)
        assert (Matcher(rule.graph, op).run() is not None) == expected, (str(rule.graph.root), str(op))
        assert not expected or rule in rules, (str(rule.graph.root), str(op))


def test_the_random_cases_include_matches():
    """Guards the property above against becoming empty."""
    found = 0
    for seed in range(200):
        plan = [(KINDS[(seed * 7 + i * 3) % len(KINDS)], (seed * i) % 3, (seed + i) % 4, i % 2) for i in range(6)]
        g = random_graph(plan)
        rule = random_rule(plan[4:], [1, seed])
        found += any(naive_match(rule, op) for op in _ops(g))
    assert found > 50


def test_a_run_leaves_no_match_behind():
    square = declare(lambda a, c, x: Rewrite(a.exp(x * x), to=c.made(x)), name="square")
    g = Graph()
    x, y = g.inputs
    g.use(g.exp(g.mul(x, x)), g.exp(g.mul(x, y)), g.exp(g.mul(g.exp(g.mul(y, y)), y)))
    run(g.block, RuleSet([square]))
    assert not any(naive_match(square, op) for op in g.block.ops)

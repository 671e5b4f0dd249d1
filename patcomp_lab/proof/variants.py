"""The variants of a rule's source: each alternative and operand order of its pattern, as a graph."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.namespaces import ArgumentSpec
from patcomp.ir.types import is_integer
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, Operation, SSAValue, maker_of
from patcomp.patterns import Rule
from patcomp.patterns.example_types import parse_type
from patcomp.patterns.language import (
    ANY,
    LAST,
    AnyOf,
    AnyValue,
    Attr,
    Capture,
    Number,
    OpNode,
    PatternNode,
    ResultNode,
)
from patcomp.patterns.match import commutes
from patcomp.patterns.pattern import children, pattern_nodes

_VARIANTS = 256
"""About how many variants of one rule are built at most."""


@dataclass(frozen=True)
class RuleVariant:
    """One choice of the alternative of each `any_of`, and of the ops whose operands are swapped."""

    choices: Mapping[int, int]
    swapped: frozenset[int]
    name: str


@dataclass
class Sample:
    """The graph of a variant of a rule's source."""

    block: Block
    root: Operation
    inputs: dict[str, SSAValue]
    """The block argument of each tensor capture."""
    nodes: dict[int, Operation]
    """The op of each op node, by the identity of the node."""


def variants(rule: Rule) -> list[RuleVariant]:
    """Every alternative and operand order of a rule's source. If there are more than `_VARIANTS`, every single choice
    and a fixed selection of their combinations."""
    alternatives = [node for node in rule.graph.nodes if isinstance(node, AnyOf)]
    found: dict[tuple[Any, ...], tuple[list[tuple[AnyOf, int]], list[OpNode]]] = {}
    for picks in _selection([len(node.alternatives) for node in alternatives]):
        choices = {id(node): pick for node, pick in zip(alternatives, picks, strict=True)}
        live = list(chosen_nodes(rule.graph.root, choices))
        taken = {id(node): (node, choices[id(node)]) for node in live if isinstance(node, AnyOf)}
        pairs = [node for node in live if isinstance(node, OpNode) and _swappable(node)]
        for swaps in _selection([2] * len(pairs)):
            swapped = [node for node, swap in zip(pairs, swaps, strict=True) if swap]
            key = (tuple((name, pick) for name, (_, pick) in taken.items()), tuple(map(id, swapped)))
            found.setdefault(key, (list(taken.values()), swapped))
    kept = list(found.values())[:: -(-len(found) // _VARIANTS)]
    numbers = {id(node): number for number, node in enumerate(alternatives, 1)}
    names = {id(node): node_name(rule, node) for node in {id(n): n for _, nodes in kept for n in nodes}.values()}
    return [
        RuleVariant(
            {id(node): pick for node, pick in taken},
            frozenset(map(id, swapped)),
            _variant_name(taken, swapped, numbers, names),
        )
        for taken, swapped in kept
    ]


def _selection(sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """All combinations of choices of the given sizes, or a fixed selection if there are too many."""
    if math.prod(sizes) <= _VARIANTS:
        yield from itertools.product(*map(range, sizes))
        return
    for position, size in enumerate(sizes):
        for pick in range(size):
            yield (*(0 for _ in sizes[:position]), pick, *(0 for _ in sizes[position + 1 :]))
    choose = random.Random(0)
    for _ in range(_VARIANTS // 8):
        yield tuple(choose.randrange(size) for size in sizes)


def node_name(rule: Rule, node: OpNode) -> str:
    """The op of a node, with a number if the rule has several such ops."""
    same = [other for other in rule.graph.nodes if isinstance(other, OpNode) and other.spec is node.spec]
    return node.spec.name + (f" #{same.index(node) + 1}" if len(same) > 1 else "")


def _variant_name(
    taken: list[tuple[AnyOf, int]], swapped: list[OpNode], numbers: Mapping[int, int], names: Mapping[int, str]
) -> str:
    parts = [f"{node.tag or f'any_of #{numbers[id(node)]}'} = {node.tags[pick]}" for node, pick in taken]
    parts += [f"{names[id(node)]} swapped" for node in swapped]
    return "matches" + (f" with {', '.join(parts)}" if parts else "")


def _swappable(node: OpNode) -> bool:
    pair = node.spec.commutative
    if pair is None or node.arguments[pair[0]] is node.arguments[pair[1]]:
        return False
    return commutes(node.spec, node.arguments)


def chosen_nodes(node: Any, choices: Mapping[int, int]) -> Iterator[Any]:
    """The nodes of a pattern in the chosen alternatives, each once."""

    def parts(item: Any) -> Iterable[Any]:
        return [item.alternatives[choices[id(item)]]] if isinstance(item, AnyOf) else children(item)

    return pattern_nodes(node, parts)


# ---- graphs ---------------------------------------------------------------------------------------


class _Building:
    """Builds the graph of one variant."""

    def __init__(self, rule: Rule, variant: RuleVariant, changed: Mapping[tuple[int, str], Any]):
        self.rule, self.variant, self.changed = rule, variant, changed
        self.block = Block()
        self.inputs: dict[str, SSAValue] = {}
        self.nodes: dict[int, Operation] = {}
        self.made: dict[int, Any] = {}
        self.like: SSAValue | None = None

    def sample(self) -> Sample:
        """The graph."""
        assert self.rule.example is not None
        for name, capture in self.rule.graph.captures.items():
            given = self.rule.example[name]
            if isinstance(capture, Capture) and isinstance(given, str):
                self.inputs[name] = self.made[id(capture)] = self._input(given)
                self.like = self.like or self.inputs[name]
        with Builder(self.block):
            root = self.value(self.rule.graph.root)
        maker = maker_of(root)
        assert maker is not None
        return Sample(self.block, maker, self.inputs, self.nodes)

    def _constant(self, literal: Any, argument: ArgumentSpec | None = None) -> Value:
        """A constant of the element type that its argument asks for, or of the first input's; a fraction next to
        integer inputs is a float."""
        if isinstance(literal, np.ndarray):  # of a recorded program
            return coreai.constant(literal)
        fraction = isinstance(literal, float) and not literal.is_integer()
        integers = self.like is not None and is_integer(Value(self.like).element_type)
        like = None if fraction and integers else self.like
        return self.rule.graph.dialect.constant(literal, like, argument)

    def _input(self, text: str) -> SSAValue:
        return self.block.insert_arg(parse_type(text), len(self.block.args))

    def value(self, node: Any, argument: ArgumentSpec | None = None) -> SSAValue:
        """The SSA value of a pattern node, which is an argument of an op."""
        if id(node) not in self.made:
            self.made[id(node)] = self._make(node, argument)
        return self.made[id(node)]

    def _make(self, node: Any, argument: ArgumentSpec | None) -> SSAValue:
        example = self.rule.example
        assert example is not None
        if isinstance(node, AnyOf):
            return self.value(node.alternatives[self.variant.choices[id(node)]])
        if isinstance(node, Capture):
            return self._constant(example[node.name], argument).ssa
        if isinstance(node, Number):
            return self._constant(node.literal, argument).ssa
        if isinstance(node, AnyValue):
            return (
                self._input("f32") if self.like is None else self.block.insert_arg(self.like.type, len(self.block.args))
            )
        if isinstance(node, ResultNode):
            return self._op(node.node, self._result_count(node.node)).results[node.index]
        return self._op(node, self._result_count(node)).results[0]

    def _result_count(self, node: OpNode) -> int:
        if node.spec.results is not None:
            return node.spec.results
        used = [n.index for n in self.rule.graph.nodes if isinstance(n, ResultNode) and n.node is node]
        return max(used, default=0) + 1

    def _op(self, node: OpNode, results: int) -> Operation:
        if id(node) not in self.nodes:
            pair = node.spec.commutative if id(node) in self.variant.swapped else None
            built = {name: self._argument(node, name, pattern) for name, pattern in node.arguments.items()}
            if pair is not None:
                built[pair[0]], built[pair[1]] = built[pair[1]], built[pair[0]]
            self.nodes[id(node)] = self.rule.graph.dialect.create_any(node.spec, built, results)
        return self.nodes[id(node)]

    def _argument(self, node: OpNode, name: str, pattern: Any) -> Any:
        if (id(node), name) in self.changed:
            changed = self.changed[id(node), name]
            if changed is ANY:
                return Value(self.value(AnyValue()))
            if node.spec.argument(name).kind == "value":
                return self._constant(changed, node.spec.argument(name))
            return self._plain(changed, node, name)
        return self._plain(pattern, node, name)

    def _plain(self, pattern: Any, node: OpNode, name: str) -> Any:
        if pattern is LAST:
            return -1
        if pattern is ANY:
            argument = node.spec.argument(name)
            return [] if argument.kind == "values" else argument.sample
        if isinstance(pattern, Attr):
            assert self.rule.example is not None
            return self.rule.example[pattern.name]
        if isinstance(pattern, PatternNode):
            return Value(self.value(pattern, node.spec.argument(name)))
        if isinstance(pattern, list):
            return [0 if item is ANY else self._plain(item, node, name) for item in pattern]
        return pattern


def sample(rule: Rule, variant: RuleVariant, changed: Mapping[tuple[int, str], Any] | None = None) -> Sample:
    """The graph of a variant of a rule's source.

    Args:
        changed: arguments that differ from the rule's, by identity of their op node and name.
    """
    return _Building(rule, variant, changed or {}).sample()

"""Tests of what a rule matches: each form of its source, and no graph with a changed literal or an outside use.

In such a graph, another alternative may still match if it does not match the changed op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.infer import InferenceError
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, UnrealizedConversionCastOp
from patcomp.patterns import Rule
from patcomp.patterns.language import ANY, LAST, AnyOf, Capture, Number, OpNode, ResultNode
from patcomp.patterns.match import Match, Matcher
from patcomp_lab.proof.variants import RuleVariant, Sample, chosen_nodes, node_name, sample, variants

_KINDS = ("alternatives and operand orders", "changed literals", "uses outside the match")
"""The kinds of tests."""


@dataclass(frozen=True)
class SelfTest:
    """A named test; `run()` raises `AssertionError` if the rule fails it."""

    name: str
    kind: str
    """One of `_KINDS`."""
    run: Callable[[], None]

    def __str__(self) -> str:
        return self.name


def self_tests(rule: Rule) -> list[SelfTest]:
    """The tests that follow from a rule's declaration.

    Raises:
        RuleError: the rule has no example.
    """
    if rule.example is None:
        raise RuleError(f"rule {rule.name} ({rule.source}) has no example= to make tests from")
    tests: list[SelfTest] = []
    seen: set[tuple[int, str, str]] = set()  # most variants share most nodes
    for variant in variants(rule):
        tests.append(SelfTest(f"{rule.name}: {variant.name}", _KINDS[0], partial(_must_match, rule, variant)))
        for node in chosen_nodes(rule.graph.root, variant.choices):
            if not isinstance(node, OpNode):
                continue
            for name, changed in _changed_literals(node):
                key = id(node), name, repr(changed)
                if key not in seen:
                    seen.add(key)
                    label = f"{rule.name}: {node_name(rule, node)} {name} changed to {changed!r}"
                    run = partial(_must_not_match_there, rule, variant, node, {(id(node), name): changed}, used=False)
                    tests.append(SelfTest(label, _KINDS[1], run))
            key = id(node), "used outside", ""
            if not node.escapes and not _is_root(rule, node, variant) and key not in seen:
                seen.add(key)
                label = f"{rule.name}: {node_name(rule, node)} used outside"
                run = partial(_must_not_match_there, rule, variant, node, {}, used=True)
                tests.append(SelfTest(label, _KINDS[2], run))
    return tests


def _is_root(rule: Rule, node: OpNode, variant: RuleVariant) -> bool:
    root = rule.graph.root
    while isinstance(root, AnyOf):
        root = root.alternatives[variant.choices[id(root)]]
    return root is node or (isinstance(root, ResultNode) and root.node is node)


def _changed_literals(node: OpNode) -> Iterator[tuple[str, Any]]:
    """Every literal argument of a node, with a value that the rule must not match."""
    for name, pattern in node.arguments.items():
        argument = node.spec.argument(name)
        if isinstance(pattern, Number):
            if isinstance(pattern.literal, bool | int | float):
                yield name, _other(pattern.literal)
        elif isinstance(pattern, bool | int | float) or (isinstance(pattern, list) and argument.kind != "values"):
            yield name, _other(pattern)
        elif pattern is LAST:
            yield name, 0
        elif pattern is None and argument.kind == "value":
            yield name, ANY
        elif pattern is None and argument.type == "ScalarType?":
            yield name, "f64"


_LARGEST = 2**63 - 1
"""PyTorch's end of a slice to the end; the next integer does not fit 64 bits."""


def _other(literal: Any) -> Any:
    if isinstance(literal, bool):
        return not literal
    if isinstance(literal, int | float):
        if literal == _LARGEST:
            return literal - 1
        return literal + 1 if math.isfinite(literal) else -literal
    if isinstance(literal, list):
        for index, item in enumerate(literal):
            if isinstance(item, bool | int | float):
                return [*literal[:index], _other(item), *literal[index + 1 :]]
        return [*literal, 0]
    return literal


def _must_match(rule: Rule, variant: RuleVariant) -> None:
    built = sample(rule, variant)
    matcher = Matcher(rule.graph, built.root, trace=True)
    if matcher.run() is None:
        reason = matcher.failure.reason if matcher.failure else "it has no failure to show"
        raise AssertionError(f"{rule.name} does not match its own source ({variant.name}): {reason}{_shown(built)}")


def _must_not_match_there(
    rule: Rule, variant: RuleVariant, node: OpNode, changed: Mapping[tuple[int, str], Any], used: bool
) -> None:
    try:
        built = sample(rule, variant, changed)
    except InferenceError:
        return  # the change makes an invalid program: the operands of a composite do not fit each other
    op = built.nodes[id(node)]
    if used:
        user = UnrealizedConversionCastOp.create(operands=[op.results[0]], result_types=[op.results[0].type])
        built.block.add_op(user)
    match = Matcher(rule.graph, built.root).run()
    if match is not None and _as_the_node(match, op, node, used):
        names = ", ".join(name for _, name in changed)
        what = "the value is used outside" if used else f"the literal {names} was changed"
        raise AssertionError(f"{rule.name} matches although at {op.name} {what}{_shown(built)}")


def _shown(built: Sample) -> str:
    """The ops of a graph as text, to follow a message."""
    return "\n".join(["", *(str(op) for op in built.block.ops)])


def _as_the_node(match: Match, op: Operation, node: OpNode, used: bool) -> bool:
    """Whether a match takes an op for a node, and not for a captured value."""
    if used:
        captured = {
            match.value_of(capture) for capture in match.pattern.captures.values() if isinstance(capture, Capture)
        }
        return op in match.ops and Value(op.results[0]) not in captured
    return match.nodes.get(id(node)) is op

"""The names that the importer gives the values of an exported program in the IR."""

from __future__ import annotations

from collections.abc import Mapping
from operator import getitem
from typing import Any

from torch.fx import GraphModule, Node

from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.ir.aten_facts import facts_of


def value_names(node: Node, expansions: Mapping[Node, GraphModule]) -> tuple[str, ...]:
    """The names that the value of a node may have in the IR; empty if it has several values, or none.

    The first name is that of the import. A stage may remove an op that does not change its operand; the value then has
    a later name.

    Args:
        node: a node of the program's own graph.
        expansions: the decompositions that are imported in place of nodes.
    """
    if node.op != "call_function":
        return ()
    if node.target is getitem:
        source, index = node.args
        names = result_names(source, expansions) if isinstance(source, Node) else []
        return names[index] if isinstance(index, int) and index < len(names) else ()
    names = result_names(node, expansions)
    return names[0] if len(names) == 1 else ()


def result_names(node: Node, expansions: Mapping[Node, GraphModule]) -> list[tuple[str, ...]]:
    """The names of each result of a node."""
    inside = expansions.get(node)
    if inside is not None:
        results = inside.graph.output_node().args[0]
        made = results if isinstance(results, list | tuple) else [results]
        return [tuple(f"{node.name}_{_own_name(each)}" for each in _same_values(result)) for result in made]
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return [(f"{node.name}_{index}",) for index in range(len(value))]
    return [(node.name, *(name for same in _same_values(node)[1:] for name in value_names(same, expansions)))]


def _own_name(node: Node) -> str:
    """The name of a result inside a decomposition, without the name of the decomposed node."""
    if node.target is getitem and isinstance(node.args[0], Node):
        return f"{node.args[0].name}_{node.args[1]}"
    return node.name


def _same_values(node: Any) -> list[Node]:
    """A node, and the nodes before it with the same value."""
    found: list[Node] = []
    while isinstance(node, Node):
        found.append(node)
        source = node.args[0] if node.op == "call_function" and node.args else None
        same = isinstance(source, Node) and facts_of(operator_name(node)).elements == "in_order"
        node = source if same and _shape(source) == _shape(node) else None
    return found


def _shape(node: Any) -> tuple[str, ...]:
    return tuple(map(str, node.meta["val"].shape))

"""Nested graphs that only switch a mode of PyTorch: their nodes take the place of the node that runs them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.fx.nodes import copy_node
from patcomp.frontend_torch.fx.provenance import nested_graph

_GRAPH_POSITIONS = {
    torch.ops.higher_order.wrap_with_set_grad_enabled: 1,
    torch.ops.higher_order.wrap_with_autocast: 4,
}
"""For operators that switch a mode, the position of the graph among the arguments; its inputs follow."""


def is_inlined(node: Node) -> bool:
    """Whether a node runs a nested graph whose nodes can take its place.

    Gradients do not change results, and an autocast that is switched off converts nothing. The casts of an autocast
    that is switched on are not in the graph, so PyTorch has to trace them.
    """
    if node.target not in _GRAPH_POSITIONS:
        return False
    converts = node.target is torch.ops.higher_order.wrap_with_autocast and node.args[2] is not False
    return not converts and all(user.target is operator.getitem for user in node.users)


def is_operand(node: Node) -> bool:
    """Whether a node is a nested graph that only inlined nodes run."""
    return nested_graph(node) is not None and all(map(is_inlined, node.users))


def with_inlined(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph; a node that is inlined is replaced by the nodes of its nested graph."""
    for node in graph.nodes:
        if is_inlined(node):
            inside, _ = _called(node)
            yield from (each for each in with_inlined(inside) if each.op not in ("placeholder", "output"))
        elif not is_operand(node):
            yield node


def flattened(graph: Graph) -> Graph:
    """A copy of a graph without nodes that can be inlined. The names of placeholders stay."""
    made = Graph(graph.owning_module)
    made.output(_copy(graph, made, {}, {})).meta = dict(graph.output_node().meta)
    return made


def _called(node: Node) -> tuple[Graph, tuple[Any, ...]]:
    """The graph that a node runs, and its inputs."""
    position = _GRAPH_POSITIONS[node.target]  # type: ignore[index]
    inside = nested_graph(node.args[position])  # type: ignore[arg-type]
    assert inside is not None
    return inside.graph, node.args[position + 1 :]


def _copy(graph: Graph, made: Graph, copied: dict[Node, Any], outer: dict[str, Any]) -> Any:
    """Copy the nodes of a graph to the end of another; return what it returns.

    Args:
        graph: the graph.
        made: the graph to extend.
        copied: the new nodes by those of the graph; for a nested graph, its placeholders are among them already.
        outer: the module and source line of the node that runs the graph, for nodes without their own.
    """
    for node in graph.nodes:
        if is_inlined(node):
            inside, inputs = _called(node)
            own = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if node.meta.get(key)}
            inner = dict(zip(inside.find_nodes(op="placeholder"), map_arg(inputs, copied.__getitem__), strict=True))
            copied[node] = _copy(inside, made, inner, outer | own)
        elif node.target is operator.getitem and is_inlined(node.args[0]):  # type: ignore[arg-type]
            copied[node] = copied[node.args[0]][node.args[1]]  # type: ignore[index]
        elif node.op != "output" and node not in copied and not is_operand(node):
            copied[node] = copy_node(made, node, copied.__getitem__)
            copied[node].meta = outer | copied[node].meta
    return map_arg(graph.output_node().args[0], copied.__getitem__)

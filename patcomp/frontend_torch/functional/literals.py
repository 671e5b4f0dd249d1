"""Tensors that nested graphs are written with, `torch.tensor([1.0, 2.0])` in a branch or in the body of a loop.

PyTorch's `run_decompositions` fails on such a tensor, so ops make it of its numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

_MOST = 1024
"""The elements that a tensor made of its numbers may have, unless all are equal."""


def has_literals(module: GraphModule) -> bool:
    """Whether a nested graph is written with tensors."""
    return any(_literals(inside) for inside in _nested(module))


def replace_literals(module: GraphModule) -> None:
    """Make the tensors that nested graphs are written with by ops.

    Raises:
        ValueError: a tensor has too many elements.
    """
    for inside in _nested(module):
        for node, value in _literals(inside):
            if value.numel() > _MOST and not bool((value == value.flatten()[0]).all()):
                count = value.numel()
                raise ValueError(f"a branch or loop is written with a tensor of {count} elements; make it a buffer")
            with inside.graph.inserting_before(node):
                made = _made(inside.graph, value)
            made.meta = dict(node.meta)
            node.replace_all_uses_with(made)
            inside.graph.erase_node(node)
            if not any(other.target == node.target for other, _ in _literals(inside)):
                delattr(inside, str(node.target))
        inside.recompile()


def _nested(module: GraphModule) -> list[GraphModule]:
    return [inside for inside in module.modules() if isinstance(inside, GraphModule) and inside is not module]


def _literals(module: GraphModule) -> list[tuple[Node, torch.Tensor]]:
    nodes = module.graph.find_nodes(op="get_attr")
    found = ((node, getattr(module, str(node.target), None)) for node in nodes)
    return [(node, value) for node, value in found if isinstance(value, torch.Tensor)]


def _made(graph: Graph, value: torch.Tensor) -> Node:
    flat = value.detach().flatten().tolist()
    options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}

    def full(size: list[int], number: complex) -> Node:
        return graph.call_function(torch.ops.aten.full.default, (size, number), options)

    if not flat or all(number == flat[0] for number in flat):
        return full(list(value.shape), flat[0] if flat else 0)
    row = graph.call_function(torch.ops.aten.stack.default, ([full([], number) for number in flat],))
    return graph.call_function(torch.ops.aten.view.default, (row, list(value.shape)))

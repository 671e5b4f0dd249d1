"""Ops that PyTorch decomposes into one other op: their graphs are written down, because a network has many of them, and
a trace takes a millisecond for each shape. Calls in any other form are traced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from patcomp.frontend_torch.decomposition.recording import batch_norm_results
from patcomp.frontend_torch.fx.nodes import given_arguments
from patcomp.pytorch import FakeTensor, LazyGraphModule, OpOverload, base_name

_OPS = torch.ops.aten


def renamed(node: Node) -> GraphModule | None:
    """The graph of a node whose op is another op under a name of its own, with a placeholder for each of its inputs;
    None for all other nodes."""
    write = _WRITTEN.get(node.target)
    inputs = node.all_input_nodes
    samples = [source.meta.get("val") for source in inputs]
    result = node.meta.get("val")
    if write is None or not all(type(each) is FakeTensor for each in (*samples, result)):
        return None
    graph = Graph()
    places: dict[Node, Node] = {}
    for number, source in enumerate(inputs):
        places[source] = graph.placeholder(f"arg{number}_1")
        places[source].meta["val"] = source.meta["val"]
    made = write(graph, node, {name: places.get(value, value) for name, value in given_arguments(node).items()})
    if made is None:
        return None
    made.meta["val"] = result
    graph.output(made)
    return LazyGraphModule({}, graph)


def _convolution(axes: int) -> Callable[[Graph, Node, Mapping[str, Any]], Node | None]:
    def write(graph: Graph, node: Node, given: Mapping[str, Any]) -> Node | None:
        if given["input"].meta["val"].dim() != axes + 2:  # without a batch
            return None

        def sizes(name: str, default: int) -> list[int]:
            listed = given.get(name, default)
            items = list(listed) if isinstance(listed, list | tuple) else [listed]
            return items * axes if len(items) == 1 else items

        spread = [sizes("stride", 1), sizes("padding", 0), sizes("dilation", 1)]
        rest = (False, [0] * axes, given.get("groups", 1))
        arguments = (given["input"], given["weight"], given.get("bias"), *spread, *rest)
        return _call(graph, _OPS.convolution.default, arguments)

    return write


def _batch_norm(graph: Graph, node: Node, given: Mapping[str, Any]) -> Node | None:
    x, mean, variance = given["input"], given["running_mean"], given["running_var"]
    tensors = [given["weight"], given["bias"], mean, variance]
    if given["training"] or mean is None or variance is None:
        return None
    results = batch_norm_results(*(each and each.meta["val"] for each in (x, *tensors)))
    if results is None:
        return None
    arguments = (x, *tensors, given["momentum"], given["eps"])
    several = _call(graph, _OPS._native_batch_norm_legit_no_training.default, arguments)
    several.meta["val"] = results
    return graph.call_function(operator.getitem, (several, 0))


def _call(graph: Graph, op: OpOverload, arguments: tuple[Any, ...]) -> Node:
    return graph.create_node("call_function", op, arguments, {}, base_name(op))


_WRITTEN: dict[Any, Callable[[Graph, Node, Mapping[str, Any]], Node | None]] = {
    _OPS.conv1d.default: _convolution(1),
    _OPS.conv2d.default: _convolution(2),
    _OPS.conv3d.default: _convolution(3),
    _OPS.batch_norm.default: _batch_norm,
}

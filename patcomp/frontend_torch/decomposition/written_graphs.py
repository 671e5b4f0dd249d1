"""Decomposed graphs as text, to be read again by another process."""

from __future__ import annotations

import json
import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from patcomp.frontend_torch.decomposition.kinds import Kind, TensorFacts, facts_of
from patcomp.pytorch import FakeTensorMode, LazyGraphModule, OpOverload, operator_of

_CONSTANTS = (torch.dtype, torch.memory_format, torch.layout)
"""The types of values that `torch` has by name."""


def key_of(kind: Kind) -> str:
    """A text for a kind of nodes; two kinds have two texts."""
    used = None if kind.used is None else sorted(kind.used)
    return repr((kind.target.name(), kind.arguments, kind.inputs, kind.results, used))


def written(graph: GraphModule | None) -> str:
    """A graph as text.

    Raises:
        TypeError: it has tensors, nested graphs, symbolic sizes, or other things that another process lacks.
    """
    return json.dumps(None if graph is None else [_node(node) for node in graph.graph.nodes])


def read(text: str, mode: FakeTensorMode) -> GraphModule | None:
    """The graph of a text of `written`, with fake tensors of a mode.

    Raises:
        ValueError: the text has another form, or an operator is not registered.
    """
    try:
        found = json.loads(text)
        return None if found is None else _graph(found, mode)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no written graph: {error!r}") from error


def _node(node: Node) -> list[Any]:
    if node.op not in ("placeholder", "call_function", "output"):
        raise TypeError(f"a node {node.op} has more than arguments")
    target = node.target
    if node.op == "call_function":
        if isinstance(target, OpOverload) and "as_strided" not in target.name():  # which reads the memory behind a view
            target = target.name()
        elif target is operator.getitem:
            target = "getitem"
        else:
            raise TypeError(f"{target} has no name")
    value = None if node.op == "output" else _text(node.meta["val"])
    return [
        node.op,
        node.name,
        target,
        _text(list(node.args)),
        {key: _text(each) for key, each in node.kwargs.items()},
        value,
    ]


def _text(value: Any) -> Any:
    """A value as JSON has it; what JSON lacks is an object with one key, which says its type."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [_text(each) for each in value]
    if type(value) is tuple:
        return {"tuple": [_text(each) for each in value]}
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, _CONSTANTS):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    facts = facts_of(value, any_offset=True)
    if facts is None:
        raise TypeError(f"another process has no {type(value).__name__} like this one")
    dtype, shape, stride, device, requires_grad = facts
    return {"tensor": [_text(dtype), list(shape), list(stride), str(device), requires_grad]}


def _graph(found: list[Any], mode: FakeTensorMode) -> GraphModule:
    if found[-1][0] != "output":
        raise ValueError("the graph has no outputs")
    graph = Graph()
    nodes: dict[str, Node] = {}

    def value_of(text: Any) -> Any:
        if isinstance(text, list):
            return [value_of(each) for each in text]
        if not isinstance(text, dict):
            return text
        ((kind, content),) = text.items()
        if kind == "tuple":
            return tuple(map(value_of, content))
        if kind == "node":
            return nodes[content]
        if kind == "torch":
            return getattr(torch, content)
        if kind == "device":
            return torch.device(content)
        if kind == "tensor":
            dtype, shape, stride, device, requires_grad = content
            return TensorFacts(value_of(dtype), shape, stride, torch.device(device), requires_grad).sample(mode)
        raise ValueError(f"values of kind {kind} are not known")

    for op, name, target, args, kwargs, value in found:
        if op == "call_function":
            target = operator.getitem if target == "getitem" else operator_of(target)
        given = tuple(map(value_of, args)), {key: value_of(each) for key, each in kwargs.items()}
        nodes[name] = node = graph.create_node(op, target, *given, name=name)
        if op != "output":
            node.meta["val"] = value_of(value)
    return LazyGraphModule({}, graph)

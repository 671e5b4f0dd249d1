"""Operators that turn a tensor itself into another view of its memory, such as `x.t_()`: no element is written."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from patcomp.pytorch import OpOverload, base_name, schema_of_overload

_VIEWS = ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")


def view_in_place(node: Node) -> OpOverload | None:
    """The operator that returns what a node turns a tensor into; None for any other node."""
    op = node.target
    if not isinstance(op, OpOverload) or op.namespace != "aten" or torch.Tag.inplace_view not in op.tags:
        return None
    name = base_name(op).removesuffix("_")
    if name not in _VIEWS:
        return None
    packet = getattr(torch.ops.aten, name)
    wanted = [(argument.name, str(argument.type)) for argument in schema_of_overload(op).arguments]
    for overload in map(packet.__getattr__, packet.overloads()):
        if [(argument.name, str(argument.type)) for argument in schema_of_overload(overload).arguments] == wanted:
            return overload  # type: ignore[no-any-return]
    return None


def replace_views_in_place(graph: Graph) -> None:
    """Make of each such node the view that it turns its argument into, which is read from there on."""
    became: dict[Node, Node] = {}
    for node in graph.nodes:
        if became:
            node.args = map_arg(node.args, lambda source: became.get(source, source))
            node.kwargs = map_arg(node.kwargs, lambda source: became.get(source, source))
        if (view := view_in_place(node)) is not None:
            node.target = view
            source = node.args[0]
            became.update({each: node for each, now in became.items() if now is source} | {source: node})

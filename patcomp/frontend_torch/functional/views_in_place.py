"""Operators that turn a tensor itself into another view of its memory, such as `x.t_()`: no element is written."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.functional.overloads import without_writes
from patcomp.frontend_torch.functional.views import certain_views
from patcomp.ir.aten import op_name
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import OpOverload, base_name


def view_in_place(node: Node) -> OpOverload | None:
    """The functional form of a node's in-place view: `transpose` for `transpose_`; None for any other node."""
    op = node.target
    if not isinstance(op, OpOverload) or op.namespace != "aten" or torch.Tag.inplace_view not in op.tags:
        return None
    found = without_writes(op, base_name(op).removesuffix("_"))
    name = "" if found is None else op_name(found.name())
    return found if name in certain_views() and facts_of(name).written != "same" else None  # `detach_` keeps the tensor


def replace_views_in_place(graph: Graph) -> None:
    """Replace each such node by the view that it turns its argument into; later nodes read the view."""
    became: dict[Node, Node] = {}
    for node in graph.nodes:
        if became:
            node.args = map_arg(node.args, lambda source: became.get(source, source))
            node.kwargs = map_arg(node.kwargs, lambda source: became.get(source, source))
        if (view := view_in_place(node)) is not None:
            node.target = view
            source = node.args[0]
            became.update({each: node for each, now in became.items() if now is source} | {source: node})

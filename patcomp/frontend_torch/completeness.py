"""Exported programs that other tools left incomplete: nodes without a recorded result."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import Node

from patcomp.errors import UnsupportedError
from patcomp.frontend_torch.fx.nodes import is_untyped, operator_name
from patcomp.frontend_torch.fx.provenance import Origins


def check_complete(program: ExportedProgram) -> None:
    """Check that used nodes have types.

    A dead node may lack `meta["val"]`, because the import skips it.

    Raises:
        UnsupportedError: a type is missing; the message lists all of them.
    """
    dead: set[Node] = set()
    used: list[Node] = []
    for node in filter(is_untyped, reversed(program.graph.nodes)):
        if dead.issuperset(node.users):
            dead.add(node)
        else:
            used.insert(0, node)
    origins = Origins(program.graph)
    problems = [
        origins[node].problem(
            operator_name(node),
            "the node has no meta['val'], which records the shape and element type of its result",
            "let the graph pass that made it set node.meta['val'], or export the model again after the change",
        )
        for node in used
    ]
    if problems:
        raise UnsupportedError("the exported program is incomplete:", problems)

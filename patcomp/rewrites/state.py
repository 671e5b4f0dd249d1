"""State: arguments that the program mutates become `!coreai.handle`s, read and written in token order.

The importer refuses programs with state for now, so there is nothing to rewrite; the stage checks that.
"""

from __future__ import annotations

from patcomp.errors import StageError
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.xdsl import ArrayAttr
from patcomp.patterns.statistics import Statistics

MUTATION = "MutableBuffers.buffer_mutation"
"""The argument attribute that names the result which holds a mutated argument's new value."""


def state(module: IRModule) -> Statistics:
    """Refuses marked arguments; without any, the module is as it should be.

    Raises:
        StageError: an argument is marked as mutated.
    """
    for graph in module.graphs:
        attributes = graph.properties.get("arg_attrs")
        if isinstance(attributes, ArrayAttr) and any(MUTATION in entry.data for entry in attributes.data):  # type: ignore[attr-defined]
            raise StageError(f"graph @{graph_name(graph)} mutates an argument; state is not supported yet")
    return Statistics()

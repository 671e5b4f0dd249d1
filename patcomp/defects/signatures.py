"""The names of an entry point's inputs, states and outputs."""

from __future__ import annotations

from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import names_of
from patcomp.ir.types import HandleType, TokenType
from patcomp.ir.xdsl import FunctionType


def names_by_kind(graph: CoreaiOp) -> dict[str, list[str | None]]:
    """The names of a graph's inputs, states and outputs, None for each without one.

    Private graphs, and graphs that are not meant to be called yet, have none to be checked.
    """
    signature = graph.properties["function_type"]
    assert isinstance(signature, FunctionType)
    arguments = list(zip(names_of(graph, "arg_attrs"), signature.inputs, strict=True))
    results = list(zip(names_of(graph, "res_attrs"), signature.outputs, strict=True))
    is_called = "priv" not in graph.properties and "externalize" not in graph.properties
    if not is_called or not any(name is not None for name, _ in (*arguments, *results)):
        return {}
    # the runtime ignores the names of tokens
    return {
        "input": [name for name, type_ in arguments if not isinstance(type_, HandleType | TokenType)],
        "state": [name for name, type_ in arguments if isinstance(type_, HandleType)],
        "output": [name for name, type_ in results if not isinstance(type_, TokenType)],
    }

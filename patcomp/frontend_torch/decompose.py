"""Decomposition on import: ops that no rule takes are taken apart, one node at a time.

What takes an op apart is, in this order, a `@decomposition` of the catalog, PyTorch's default table for export,
and every other decomposition that PyTorch has. So a program converts the same way whether its user decomposed it with
`get_decomp_table()`, with another table, or not at all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import global_decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from patcomp.frontend_torch.decompositions import get_decomp_table
from patcomp.frontend_torch.importer import is_assertion, operator_name
from patcomp.ir import aten


def functional(program: ExportedProgram) -> ExportedProgram:
    """The program, or one that PyTorch decomposed from it where it writes in place or nests graphs."""
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
            return program.run_decompositions(get_decomp_table())
    return program


class Decomposer:
    """Takes nodes apart.

    Args:
        known: ops of the `aten` dialect that stay whole, since rules take them.
        own: the catalog's decompositions by op.
    """

    def __init__(self, known: frozenset[str], own: Mapping[str, Callable[..., Any]]):
        self._known = known
        declared = {overload_of(name): function for name, function in own.items()}
        usual = self._unknown_of(get_decomp_table() | declared)
        # the rest often ends in ops outside of ATen, so it only takes apart what is left
        self._tables = (usual, self._unknown_of(global_decomposition_table["post_autograd"]) | usual)
        self._graphs: dict[Any, GraphModule | None] = {}

    def _unknown_of(self, table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
        return {op: function for op, function in table.items() if aten.op_name(op.name()) not in self._known}

    def graph_of(self, node: Node) -> GraphModule | None:
        """What a node is made of, with a placeholder for each of `node.all_input_nodes`; None if it is atomic.

        Nodes that differ in nothing but their inputs share one graph.
        """
        key = _key(node)
        if key not in self._graphs:
            self._graphs[key] = None
            for table in self._tables:
                graph = self._traced(node, table)
                self._graphs[key] = graph or self._graphs[key]
                if graph is not None and not self.unknown(graph):
                    break
        return self._graphs[key]

    def unknown(self, graph: GraphModule) -> list[str]:
        """The ops in a graph that no rule takes."""
        calls = {
            node for node in graph.graph.nodes if node.op == "call_function" and node.target is not operator.getitem
        }
        return sorted({operator_name(node) for node in calls if not is_assertion(node)} - self._known)

    def _traced(self, node: Node, table: Mapping[Any, Callable[..., Any]]) -> GraphModule | None:
        inputs = node.all_input_nodes
        target = node.target
        assert isinstance(target, torch._ops.OpOverload)

        def call(*tensors: torch.Tensor) -> Any:
            values = dict(zip(inputs, tensors, strict=True))
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)  # type: ignore[misc]
            return target(*args, **kwargs)

        fakes = [leaf for leaf in pytree.tree_leaves(node.meta["val"]) if isinstance(leaf, FakeTensor)]
        if not fakes:
            return None
        functional_call = torch.func.functionalize(call, remove="mutations")
        with fakes[0].fake_mode, torch.no_grad():
            traced = make_fx(functional_call, decomposition_table=table)(*(n.meta["val"] for n in inputs))
        traced.graph.eliminate_dead_code()
        calls = [inner for inner in traced.graph.nodes if inner.op == "call_function"]
        return None if any(inner.target is target for inner in calls) else traced


def _key(node: Node) -> Any:
    places = {source: f"%{index}" for index, source in enumerate(node.all_input_nodes)}
    args, kwargs = map_arg((node.args, node.kwargs), places.__getitem__)  # type: ignore[misc]
    fakes = [source.meta["val"] for source in node.all_input_nodes]
    kinds = [(fake.dtype, tuple(fake.shape), fake.stride()) for fake in fakes if isinstance(fake, torch.Tensor)]
    return node.target, repr(args), repr(kwargs), repr(kinds)


def overload_of(name: str) -> torch._ops.OpOverload:
    """PyTorch's operator of a name in the `aten` dialect, `"aten.add.Tensor"`.

    Raises:
        AttributeError: the installed PyTorch has no such operator.
    """
    namespace, packet, *overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload[0] if overload else "default")

"""Run the graph of an exported program by PyTorch, node by node, and tell which values leave a module of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from patcomp.evaluate.twin import Wider
from patcomp.frontend_torch.fx.provenance import modules_of
from patcomp.pytorch import tree_map

Visit = Callable[[Node, Any], object]
"""Called with each node and its value, in order."""


def run_graph(graph: GraphModule, given: Mapping[str, Any], visit: Visit, wider: Wider | None = None) -> None:
    """Run a graph.

    Args:
        graph: the graph of an exported program.
        given: the values of its placeholders by name; unused ones may be missing.
        visit: called with each node and its value.
        wider: computes in wider types.
    """
    runner = _Runner(graph)
    runner.given, runner.visit = (given if wider is None else tree_map(wider.widened, dict(given))), visit
    with torch.no_grad(), wider or nullcontext():
        runner.run()


class _Runner(Interpreter):
    given: Mapping[str, Any]
    visit: Visit

    def run_node(self, n: Node) -> Any:
        value = self._placeholder(n) if n.op == "placeholder" else super().run_node(n)
        if n.op != "output":
            self.visit(n, value)
        return value

    def _placeholder(self, node: Node) -> Any:
        value = self.given.get(node.name)
        if isinstance(value, torch.Tensor) and not isinstance(node.meta["val"], torch.Tensor):
            return value.item()
        return value


def left_modules(node: Node) -> list[str]:
    """The modules that the value of a node leaves, innermost first: a node outside of them, or the output, uses it."""
    users = [set(modules_of(user)) if user.op != "output" else set() for user in node.users]
    return [module for module in reversed(modules_of(node)) if any(module not in inside for inside in users)]

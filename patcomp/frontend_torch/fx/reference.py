"""Run the graph of an exported program by PyTorch, node by node, and tell which values leave a module of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from patcomp.frontend_torch.fx.provenance import modules_of
from patcomp.pytorch import tree_map_only

Visit = Callable[[Node, Any], object]
"""Called with each node and its value, in order."""

_HALF = (torch.float16, torch.bfloat16)


def run_graph(graph: GraphModule, given: Mapping[str, Any], visit: Visit, *, in_float32: bool = False) -> None:
    """Run a graph.

    Args:
        graph: the graph of an exported program.
        given: the values of its placeholders by name; unused ones may be missing.
        visit: called with each node and its value.
        in_float32: compute in float32 what the program computes in half precision.
    """
    runner = _InFloat32(graph) if in_float32 else _Runner(graph)
    runner.given, runner.visit = given, visit
    with torch.no_grad():
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


class _InFloat32(_Runner):
    def _placeholder(self, node: Node) -> Any:
        return _wide(super()._placeholder(node))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map_only(torch.dtype, lambda t: torch.float32 if t in _HALF else t, (args, kwargs))
        return _wide(super().call_function(target, args, kwargs))


def _wide(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda each: each.float() if each.dtype in _HALF else each, value)


def left_modules(node: Node) -> list[str]:
    """The modules that the value of a node leaves, innermost first: a node outside of them, or the output, uses it."""
    users = [set(modules_of(user)) if user.op != "output" else set() for user in node.users]
    return [module for module in reversed(modules_of(node)) if any(module not in inside for inside in users)]

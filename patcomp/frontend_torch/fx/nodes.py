"""FX nodes: their op, its arguments and results, whether there is anything to compute; and copies of nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from patcomp.evaluate.draws import draws
from patcomp.frontend_torch.fx.sizes import SYMBOLIC
from patcomp.ir import aten
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import OpOverload, schema_of_overload

ASSIGNS_DATA = "aten._has_compatible_shallow_copy_type"
"""What `torch.export` keeps of `weight.data = other`: PyTorch's question whether the tensors go together."""


def is_assertion(node: Node) -> bool:
    """Whether a node only checks something, or asks for a type.

    Export leaves such nodes in the graph. They compute nothing, and the IR's types state the same facts.
    """
    # run_decompositions turns ops that may raise into with_effects(token, op, ...), to keep their order
    target = node.args[1] if node.target is torch.ops.higher_order.with_effects else node.target
    return isinstance(target, OpOverload) and facts_of(_name_of(target)).checks


def read_by_checks_only(graph: Graph) -> set[Node]:
    """The nodes that serve only checks (assertions), directly or through other such nodes."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        has_effects = node.op in ("placeholder", "output") or writes_in_place(node)
        is_read = node.users or node.target is operator.getitem  # one of several results may be unused
        if is_read and not has_effects and all(is_assertion(user) or user in found for user in node.users):
            found.add(node)
    return found


def producer_of(node: Node) -> Node:
    """The node of the operator that made a node's value: for one of several results, the node of them all."""
    return node.all_input_nodes[0] if node.target is operator.getitem else node


def copy_node(graph: Graph, node: Node, new: Callable[[Node], Any]) -> Node:
    """Copy a node to the end of a graph. A placeholder keeps its name, also if it is one of Python, such as `input`.

    Args:
        graph: the graph.
        node: a node of another graph.
        new: what takes the place of each argument of the node that is a node.
    """
    copied = graph.node_copy(node, new)
    if node.op == "placeholder":
        copied.name = node.name
    return copied


def is_untyped(node: Node) -> bool:
    """Whether an operator's node lacks `meta["val"]`; export records it, and graph passes may leave it out."""
    if not isinstance(node.target, OpOverload) or is_assertion(node):
        return False
    return "val" not in node.meta or reads_known_number(node)


def reads_known_number(node: Node) -> bool:
    """Whether a node reads a number from a tensor of constants. Export knows it, and keeps a dead node without it."""
    return reads_number(node) and node.meta.get("val") is None


def reads_number(node: Node) -> bool:
    """Whether a node reads a number from a tensor."""
    return isinstance(node.target, OpOverload) and facts_of(_name_of(node.target)).reads


def is_size(node: Node) -> bool:
    """Whether a node computes a size that is only known when the program runs, or a condition on sizes."""
    return isinstance(node.meta.get("val"), SYMBOLIC)


def writes_in_place(node: Node) -> bool:
    """Whether a node calls an operator that writes to one of its arguments."""
    return isinstance(node.target, OpOverload) and schema_of_overload(node.target).is_mutable


def draws_random_numbers(node: Node) -> bool:
    """Whether a node draws random numbers."""
    return node.op == "call_function" and draws(node.target, node.args, node.kwargs)


def operator_name(node: Node) -> str:
    """The name of a node's op in the `aten` dialect; Python's name of a target that is no operator overload."""
    if isinstance(node.target, OpOverload):
        return _name_of(node.target)
    return getattr(node.target, "__name__", str(node.target))


@lru_cache(maxsize=4096)
def _name_of(target: OpOverload) -> str:
    return aten.op_name(target.name())


@lru_cache(maxsize=4096)
def list_lengths(target: OpOverload) -> dict[str, int | None]:
    """The arguments of an operator by name, in order: the length of a list that one number may stand for, or None."""
    return {argument.name: argument.N for argument in schema_of_overload(target).arguments}


def given_arguments(node: Node) -> dict[str, Any]:
    """The arguments that a node gives its operator, by name, in the order of the schema."""
    assert isinstance(node.target, OpOverload)
    names = list_lengths(node.target)
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return {name: given[name] for name in names if name in given}


def recorded_results(node: Node) -> list[Any]:
    """The results that export recorded for a node, as a list also if there is only one."""
    result = node.meta["val"]
    return list(result) if isinstance(result, list | tuple) else [result]


def graphs_of(program: ExportedProgram) -> list[Graph]:
    """The graph of a program, then the graphs of its branches and loop bodies."""
    return [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]


class _Place:
    """The place of an input node in the text of arguments."""

    def __init__(self, index: int):
        self._index = index

    def __repr__(self) -> str:
        return f"%{self._index}"


def arguments_text(node: Node) -> str:
    """The arguments of a node as Python code, in which `%0` is the first of its input nodes."""
    places = {source: _Place(index) for index, source in enumerate(node.all_input_nodes)}
    return repr(map_arg((node.args, node.kwargs), places.__getitem__))  # type: ignore[arg-type, return-value]

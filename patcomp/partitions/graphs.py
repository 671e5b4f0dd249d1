"""The graph that is cut: a copy of a program's graph, which nodes of it compute, and what each of them costs."""

from __future__ import annotations

import copy
import math
import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from patcomp.frontend_torch.fx.nodes import copy_node, is_assertion, is_size
from patcomp.frontend_torch.fx.provenance import nested_graph, nodes_of
from patcomp.frontend_torch.fx.sizes import SYMBOLIC, known
from patcomp.pytorch import OpOverload, can_decompose, pytree, replace_graph_module


def cuttable(program: ExportedProgram) -> ExportedProgram:
    """A copy of a functional program whose graph may be changed.

    Its nodes have the names of the program's nodes. Dead nodes are left out, and so are checks of element types, which
    the graph has recorded: a part would have to give its inner values for them. Each op with branches or a loop has
    attributes of its own for its graphs.
    """
    graph, made = Graph(), dict[Node, Node]()
    for node in program.graph.nodes:
        made[node] = copied = copy_node(graph, node, made.__getitem__)
        copied.name = node.name  # which the signature knows
    for node in list(reversed(graph.nodes)):
        for held in [each for each in node.all_input_nodes if nested_graph(each) is not None and len(each.users) > 1]:
            with graph.inserting_before(node):
                node.replace_input_with(held, graph.node_copy(held))
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    changed = copy.copy(program)
    replace_graph_module(changed, GraphModule(program.graph_module, graph))
    return changed


def computes(node: Node) -> bool:
    """Whether a node is an op that is counted and reported: not a size, a check or one of several results."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return not is_size(node) and not is_assertion(node)


def is_size_of_tensor(node: Node) -> bool:
    """Whether a node reads a size from a tensor."""
    return node.target is torch.ops.aten.sym_size.int


def sizes_of_inputs(graph: Graph) -> set[Node]:
    """The nodes that compute sizes from the sizes of the program's inputs alone."""
    found: set[Node] = set()
    for node in graph.nodes:
        if is_size(node) and all(source.op == "placeholder" or source in found for source in node.all_input_nodes):
            found.add(node)
    return found


# ---- what a node costs, at the sizes of the example -----------------------------------------------------


def example_size(size: Any) -> int:
    """A size as it was in the example; 1 if only a run knows it."""
    size = known(size)
    if not isinstance(size, SYMBOLIC):
        return int(size)
    return int(size.node.hint) if size.node.has_hint() else 1


def recorded_elements(value: Any) -> int:
    """The number of elements of a recorded value; of several, that of all together."""
    leaves = pytree.tree_leaves(value)
    return sum(math.prod(map(example_size, leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor))


def recorded_bytes(value: Any) -> int:
    """The bytes of a recorded tensor; 8 of a number."""
    return recorded_elements(value) * value.dtype.itemsize if isinstance(value, torch.Tensor) else 8


def products_of(node: Node) -> int:
    """How many products of two numbers a node adds up, by PyTorch's own counter; 0 of ops that it does not know.

    Branches count all, and the body of a loop once.
    """
    inner = [inside for source in node.all_input_nodes if (inside := nested_graph(source)) is not None]
    if inner:
        return sum(products_of(each) for inside in inner for each in nodes_of(inside.graph))
    target = node.target
    if not isinstance(target, OpOverload) or not (target.overloadpacket in flop_registry or can_decompose(target)):
        return 0

    def example(source: Node) -> Any:
        return pytree.tree_map(_on_meta, source.meta.get("val"))

    args, kwargs = map_arg((node.args, node.kwargs), example)  # type: ignore[misc]
    try:
        with FlopCounterMode(display=False) as counter:
            target(*args, **{name: value for name, value in kwargs.items() if name != "device"})
    except (NotImplementedError, RuntimeError):  # PyTorch computes the op's shape from numbers: no product does that
        return 0
    return counter.get_total_flops() // 2


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty(tuple(map(example_size, value.shape)), dtype=value.dtype, device="meta")
    return example_size(value) if isinstance(value, SYMBOLIC) else value


def type_text(value: Any) -> str:
    """A recorded value in words: `float32 4x16`, or `number`."""
    if not isinstance(value, torch.Tensor):
        return "number"
    sizes = "x".join(str(known(size)) for size in value.shape)
    return f"{str(value.dtype).removeprefix('torch.')} {sizes}".rstrip()

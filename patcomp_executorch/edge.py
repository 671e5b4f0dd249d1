"""Programs of ExecuTorch's edge dialect as patcomp reads them, and single nodes of them as programs."""

from __future__ import annotations

import copy
import operator

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from patcomp.pytorch import OpOverload, pytree, replace_graph_module

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def aten_program(program: ExportedProgram) -> ExportedProgram:
    """A copy of a program with the ops of PyTorch that those of the edge dialect stand for, and the same weights; nodes
    keep their names."""
    copied, graphs = copy.copy(program), copy.deepcopy(program.graph_module)
    for module in graphs.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                if isinstance(node.target, EdgeOpOverload):
                    node.target = op_of_pytorch(node.target)
            module.recompile()
    replace_graph_module(copied, graphs)
    return copied


def op_of_pytorch(target: EdgeOpOverload) -> OpOverload:
    """The op of PyTorch that an op of the edge dialect stands for."""
    return target._op


def values_of(node: Node) -> list[object]:
    """The values of a node that export recorded: several for an op with several results."""
    value = node.meta.get("val")
    return list(value) if isinstance(value, tuple | list) else [value]


def is_number(node: Node) -> bool:
    """Whether a node computes a number from sizes."""
    return any(isinstance(value, _NUMBERS) for value in values_of(node))


def weight_inputs(program: ExportedProgram) -> dict[str, InputSpec]:
    """The inputs of a program's graph that are weights and are not written to, by the names of their nodes."""
    signature = program.graph_signature
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    written = set(signature.buffers_to_mutate.values())
    return {each.arg.name: each for each in signature.input_specs if each.kind in kinds and each.target not in written}


def program_of_node(node: Node, owner: ExportedProgram) -> ExportedProgram:
    """The program that computes a node, with the numbers that it takes, from tensors and weights.

    Args:
        node: an op in the graph of `owner`, a program of PyTorch's ops.
    """
    weights, graph, new = weight_inputs(owner), Graph(), dict[Node, Node]()
    computed, waiting = {node}, [node]
    while waiting:
        numbers = {each for each in waiting.pop().all_input_nodes if each.op == "call_function" and is_number(each)}
        waiting += numbers - computed
        computed |= numbers
    whole = [each for each in owner.graph.nodes if each in computed]
    read = dict.fromkeys(each for one in whole for each in one.all_input_nodes if each not in computed)
    held = [each for each in read if each.op == "get_attr"]  # the branches of control flow
    inputs = sorted({*read}.difference(held), key=lambda each: each.name not in weights)  # weights come first
    for each in inputs:
        new[each] = graph.placeholder(each.name)
        new[each].meta = dict(each.meta)
    for each in (*held, *whole):
        new[each] = graph.node_copy(each, new.__getitem__)
    results = _results(graph, new[node])
    graph.output(tuple(results))
    specs = [weights.get(each.name) or InputSpec(InputKind.USER_INPUT, _argument(new[each]), None) for each in inputs]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, _argument(each), None) for each in results]
    count = sum(spec.kind is InputKind.USER_INPUT for spec in specs)
    trees = pytree.tree_structure(((0,) * count, {})), pytree.tree_structure((0,) * len(results))
    targets = {spec.target for spec in specs}
    return ExportedProgram(
        GraphModule(owner.graph_module, graph),
        graph,
        ExportGraphSignature(specs, outputs),
        {name: value for name, value in owner.state_dict.items() if name in targets},
        owner.range_constraints,
        [ModuleCallEntry("", ModuleCallSignature([], [], *trees))],
        constants={name: value for name, value in owner.constants.items() if name in targets},
    )


def _results(graph: Graph, node: Node) -> list[Node]:
    """The results of the last node of a graph, each as a node."""
    if not isinstance(node.meta["val"], tuple | list):
        return [node]
    found = []
    for index, value in enumerate(node.meta["val"]):
        if isinstance(value, torch.Tensor):
            found.append(graph.call_function(operator.getitem, (node, index)))
            found[-1].meta = {**node.meta, "val": value}
    return found


def _argument(node: Node) -> TensorArgument | SymIntArgument:
    kind = SymIntArgument if isinstance(node.meta["val"], torch.SymInt) else TensorArgument
    return kind(name=node.name)

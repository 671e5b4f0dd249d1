"""Programs of ExecuTorch's edge dialect as patcomp reads them, and what their nodes give."""

from __future__ import annotations

import copy

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from patcomp.pytorch import OpOverload

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def aten_program(program: ExportedProgram) -> ExportedProgram:
    """A program with the ops of PyTorch that those of the edge dialect stand for. Nodes keep their names, and the
    weights are the same."""
    graphs = copy.deepcopy(program.graph_module)
    for module in graphs.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                if isinstance(node.target, EdgeOpOverload):
                    node.target = op_of_pytorch(node.target)
            module.recompile()
    return ExportedProgram(
        graphs,
        graphs.graph,
        copy.deepcopy(program.graph_signature),
        program.state_dict,
        program.range_constraints,
        copy.deepcopy(program.module_call_graph),
        program.example_inputs,
        program.constants,
    )


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

"""The values of the nodes of an exported program, run by PyTorch: what a debugger compares an asset with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from patcomp.evaluate.twin import Wider
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.running import Visit, run_graph
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.interface.reference import ReferenceKind, ReferenceValue, Save

_MOVING = {
    *("as_strided", "chunk", "clone", "contiguous", "detach", "expand", "narrow", "permute", "repeat", "reshape"),
    *("select", "slice", "slice_scatter", "split", "split_with_sizes", "squeeze", "t", "to", "transpose", "unbind"),
    *("unsqueeze", "view", "_unsafe_view"),
}
"""The operators that only move elements. coreai-torch 0.4.3 does not save their values either."""


def run_exported(item: Staged, values: Mapping[str, Any], visit: Visit, wider: Wider | None = None) -> None:
    """Run an exported program.

    Args:
        item: the program.
        values: its inputs and the contents of its states, by the names in the converted program.
        visit: called with each node and its value.
        wider: computes in wider types.
    """
    signature = item.signature
    given = {
        **signature.fixed_inputs,
        **{name: value for name, (_, value) in signature.constants.items()},
        **{name: values[named] for name, named in item.names.of_arguments(signature).items()},
    }
    given = {name: torch.as_tensor(v) if hasattr(v, "__array__") else v for name, v in given.items()}
    run_graph(item.program.graph_module, given, visit, wider)


def save_reference(item: Staged, values: Mapping[str, Any], computed: Collection[str], save: Save) -> None:
    """Run an exported program, and save the values of its nodes.

    A value that is only moved is saved if it is an output, or if an op computes it and none the value before the move:
    the view of a product, say.

    Args:
        item: the program.
        values: its inputs by the names in the converted program. A state that is not given has its initial content.
        computed: the names of the nodes whose values ops of the asset compute.
        save: called with each value.
    """
    signature = item.signature
    buffers = {state.placeholder: state.target for state in signature.states if state.is_buffer}
    weights = {name: path for name, (path, _) in signature.constants.items()} | buffers
    initial = {name: state.initial for name, state in zip(item.names.states, signature.states, strict=True)}
    outputs = set(signature.results)

    def visit(node: Node, value: Any) -> None:
        if not isinstance(value, Tensor):
            return
        if node.name in weights:
            path = weights[node.name]
            save(_value("intermediates", path.replace(".", "_"), "get_attr", path, value))
        elif node.op == "placeholder":
            save(_value("inputs", node.name, node.op, node.name, value))
        elif node.name in outputs:
            save(_value("outputs", node.name, node.op, str(node.target), value))
        elif node.op == "call_function" and (not _only_moves(node) or _stands_for_its_source(node, computed)):
            save(_value("intermediates", node.name, node.op, str(node.target), value))

    run_exported(item, {**initial, **values}, visit)


def _stands_for_its_source(node: Node, computed: Collection[str]) -> bool:
    """Whether an op computes the value of a node that only moves elements, and none the value that it moves."""
    source = node
    while source.op == "call_function" and _only_moves(source) and isinstance(source.args[0], Node):
        source = source.args[0]
    return node.name in computed and source.op == "call_function" and source.name not in computed


def _only_moves(node: Node) -> bool:
    name = operator_name(node)
    return name == "getitem" or name.removeprefix("aten.").partition(".")[0] in _MOVING


def _value(kind: ReferenceKind, name: str, op: str, target: str, value: Tensor) -> ReferenceValue:
    value = value.detach()
    if value.is_floating_point() and value.dtype not in (torch.float16, torch.float32, torch.float64):
        value = value.float()  # numpy has no bfloat16 and no float8
    return ReferenceValue(kind, name, op, target, value.numpy(), str(value.dtype))

"""The values of the nodes of an exported program, run by PyTorch: what a debugger compares an asset with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from patcomp.evaluate.twin import Wider
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.running import Visit, run_graph
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.interface.reference import Kind, ReferenceValue, Save

_MOVING = {
    *("as_strided", "chunk", "clone", "contiguous", "detach", "expand", "narrow", "permute", "repeat", "reshape"),
    *("select", "slice", "slice_scatter", "split", "split_with_sizes", "squeeze", "t", "to", "transpose", "unbind"),
    *("unsqueeze", "view", "_unsafe_view"),
}
"""The operators that only move elements. Their values are not saved unless they are outputs, as coreai-torch 0.4.3 does
not save them."""


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


def save_reference(item: Staged, values: Mapping[str, Any], save: Save) -> None:
    """Run an exported program, and save the values of its nodes.

    Args:
        item: the program.
        values: its inputs by the names in the converted program. A state that is not given has its initial content.
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
        elif node.op == "call_function" and not _only_moves(node):
            save(_value("intermediates", node.name, node.op, str(node.target), value))

    run_exported(item, {**initial, **values}, visit)


def _only_moves(node: Node) -> bool:
    name = operator_name(node)
    return name == "getitem" or name.removeprefix("aten.").partition(".")[0] in _MOVING


def _value(kind: Kind, name: str, op: str, target: str, value: Tensor) -> ReferenceValue:
    value = value.detach()
    if value.is_floating_point() and value.dtype not in (torch.float16, torch.float32, torch.float64):
        value = value.float()  # numpy has no bfloat16 and no float8
    return ReferenceValue(kind, name, op, target, value.numpy(), str(value.dtype))

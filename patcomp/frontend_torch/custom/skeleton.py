"""Advice for an op that cannot be converted; for a custom op, a skeleton of its lowering."""

from __future__ import annotations

import keyword
import re
from typing import Any

import torch
from torch.fx import Node

from patcomp.errors import Problem
from patcomp.frontend_torch.custom.lowerings import argument_of
from patcomp.frontend_torch.custom.metal_kernel import NAMESPACE as METAL_KERNELS
from patcomp.frontend_torch.fx.dtypes import type_of
from patcomp.frontend_torch.fx.nodes import ASSIGNS_DATA, draws_random_numbers, operator_name, recorded_results
from patcomp.pytorch import OpOverload, overload_name, schema_of_overload

_OF_PYTORCH = ("aten", "prims")
_WRITING = (torch.ops.higher_order.auto_functionalized, torch.ops.higher_order.auto_functionalized_v2)
"""PyTorch's wrappers of custom ops that write to their arguments."""


def is_of_custom_op(problem: Problem) -> bool:
    """Whether a problem is about a custom op, for which the user may still register a lowering."""
    namespace, _, op = problem.op.partition(".")
    return bool(op) and namespace not in _OF_PYTORCH


def advice_for(node: Node) -> str:
    """Advice for the user of a node's op."""
    target = node.target
    if target in _WRITING and isinstance(node.args[0], OpOverload):
        return f"{node.args[0].name()} writes to its arguments: define it as an op that returns new tensors"
    if draws_random_numbers(node):
        return (
            'convert with random="inputs" (--random inputs), which makes each draw an input of the program; dropout is '
            "for training: call model.eval() before torch.export.export"
        )
    if operator_name(node) == ASSIGNS_DATA:
        return "assign the weights before the export, and leave the assignment out of `forward`"
    if not isinstance(target, OpOverload) or target.namespace in _OF_PYTORCH:
        return "rewrite the model without this op, register a lowering, or add a rule for the op to a catalog"
    if target.namespace == METAL_KERNELS:
        return "register the kernel: converter.register_custom_kernels([kernel])"
    schema, name = schema_of_overload(target), target.name().replace("::", ".")
    own = schema.name.rpartition("::")[2]
    return (
        f"write a rule, `patcomp rule new {own} --kind lowering --op {name} --import MODULE`, and convert with "
        f"--catalog {own}.py (docs/your-first-lowering.md); or give the op a decomposition (torch.library)"
        f"\n\n# or register a lowering\n{lowering_skeleton(node)}"
    )


def lowering_skeleton(node: Node) -> str:
    """A lowering of a node's op as Python text, complete except for the line that computes the result.

    It reads every argument; comments show the argument's value in this node.
    """
    target = node.target
    assert isinstance(target, OpOverload)
    schema = schema_of_overload(target)
    lines = [
        "from patcomp import get_operand",
        "from patcomp.ir import coreai",
        "",
        "",
        f'@converter.register_torch_lowering("{schema.name}.{overload_name(target)}")',
        f"def lower_{schema.name.rpartition('::')[2]}(values_map, node, loc):",
    ]
    for index, argument in enumerate(schema.arguments):
        lines.append(f"    {_spelled(argument.name)} = {_read(argument, index)}  # {_shown(argument_of(node, index))}")
    several, results = isinstance(node.meta["val"], list | tuple), recorded_results(node)
    names = [f"result_{index}" for index in range(len(results))] if several else ["result"]
    for name, result in zip(names, results, strict=True):
        lines.append(
            f"    {name} = ...  # {_shown(result)}: build it with coreai.broadcasting_add(..., loc=loc) and so on"
        )
    lines.append(f"    return [{', '.join(names)}]" if several else "    return result")
    return "\n".join(lines)


def _read(argument: Any, index: int) -> str:
    """The expression for an argument of the node; numbers stay Python's."""
    if "Tensor" in str(argument.type):
        return f"get_operand(values_map, node, {index}, loc)"
    default = repr(argument.default_value)
    if argument.kwarg_only:
        return f"node.kwargs.get({argument.name!r}, {default})"
    if argument.has_default_value():
        return f"node.args[{index}] if len(node.args) > {index} else {default}"
    return f"node.args[{index}]"


_TAKEN = re.compile(r"values_map|node|loc|coreai|converter|get_operand|result(_\d+)?")
"""The names that the skeleton itself uses."""


def _spelled(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or _TAKEN.fullmatch(name) else name


def _shown(given: Any) -> str:
    if isinstance(given, Node):
        return _shown(given.meta["val"])
    if isinstance(given, torch.Tensor):
        return str(type_of(given))
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(_shown, given))}]"
    return repr(given)

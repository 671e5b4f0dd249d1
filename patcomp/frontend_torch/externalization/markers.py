"""Markers: two operators without results that record, in a model's trace, where a call of a module begins and ends.

They compute nothing, so a marked model has the same results, in-place writes and gradients. Side effects keep them in
the graph through decomposition, dead code elimination and saving; nested calls nest like parentheses. The text `region`
contains everything that the import needs, so a marked program is self-contained.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from patcomp.frontend_torch.fx.nodes import given_arguments, graphs_of
from patcomp.ir.attributes import composite_declaration
from patcomp.ir.region import RegionBeginOp, RegionEndOp, strings
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, BoolAttr, Operation, StringAttr

_LIBRARY = torch.library.Library("patcomp", "FRAGMENT")
_LIBRARY.define("region_begin(Tensor[] inputs, str[] names, str[] scalars, str region) -> ()")
_LIBRARY.define("region_end(Tensor[] outputs, str region) -> ()")
for _name in ("region_begin", "region_end"):
    _LIBRARY.impl(_name, lambda *arguments: None, "CompositeExplicitAutograd")
    for _lazy in ("Conjugate", "Negative"):  # a marker takes the tensor itself, not a copy with these applied
        _LIBRARY.impl(_name, torch.library.fallthrough_kernel, _lazy)

    # inside of vmap a module does not see one dimension of its tensors, so such a call becomes no region
    torch.library.register_vmap(f"patcomp::{_name}", lambda *arguments: (None, None), lib=_LIBRARY)

BEGIN: Any = torch.ops.patcomp.region_begin.default
END: Any = torch.ops.patcomp.region_end.default
for _marker in (BEGIN, END):
    torch.fx.node.has_side_effect(_marker)


@dataclass(frozen=True)
class MarkedModule:
    """A module that becomes a region, as its markers describe it."""

    path: str
    composite: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    recover: bool = True
    parameters: dict[str, list[str]] = field(default_factory=dict)
    """Its parameters and buffers in declaration order, and the names under which the whole model has each of them."""

    def text(self) -> str:
        """The text that the markers carry."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, node: Node) -> MarkedModule:
        """The module that a marker node describes."""
        return cls(**json.loads(given_arguments(node)["region"]))


def is_marker(node: Node) -> bool:
    """Whether a node marks the begin or end of a module's call."""
    return node.target in (BEGIN, END)


def marked_modules(program: ExportedProgram) -> Iterator[MarkedModule]:
    """The module of each marked call of a program, also in branches and loop bodies."""
    for graph in graphs_of(program):
        yield from (MarkedModule.of(node) for node in graph.nodes if node.target is BEGIN)


def marker_op(
    node: Node, value_of: Callable[[Node], Value], parameter_of: Callable[[Sequence[str]], Value | None]
) -> Operation:
    """The op of the `patcomp` dialect for a marker node.

    Args:
        node: the marker.
        value_of: the value of another node.
        parameter_of: the value of a parameter or buffer that the model has under some names; None if nothing uses it.

    Raises:
        TypeError: an argument of a composite's call can be neither an input nor an attribute, or a parameter of the
            composite is a tensor subclass.
    """
    module, arguments = MarkedModule.of(node), given_arguments(node)
    symbol = StringAttr(module.path)
    if node.target is END:
        outputs = [value_of(output).ssa for output in arguments["outputs"]]
        return RegionEndOp.create(operands=outputs, properties={"symbol": symbol})
    parameters = {
        name: value
        for name, names in (module.parameters.items() if module.composite else ())
        if (value := parameter_of(names)) is not None
    }
    inputs = [*parameters.values(), *(value_of(tensor) for tensor in arguments["inputs"])]
    unused = [name for name in module.parameters if name not in parameters] if module.composite else []
    properties: dict[str, Attribute] = {
        "symbol": symbol,
        "parameter_names": strings(list(parameters)),
        "unused_names": strings(unused),
        "argument_names": strings(arguments["names"]),
        "recover": BoolAttr.from_bool(module.recover),
    }
    if module.composite:
        attributes = _with_scalars(module, arguments["scalars"])
        version = attributes.pop("version", 1)
        properties["declaration"] = composite_declaration(
            module.composite, input_names=(), output_names=(), attributes=attributes, version=version
        )
    return RegionBeginOp.create(operands=[value.ssa for value in inputs], properties=properties)


def scalar_text(name: str, value: Any) -> str:
    """An argument of a call that is not a tensor, as the begin marker carries it."""
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, torch.Size):
        value = tuple(value)
    if value is None or isinstance(value, bool | int | float | str | list | tuple | dict):
        return f"{name}={value!r}"
    return f"{name}=<{type(value).__name__}>"


def _with_scalars(module: MarkedModule, scalars: Sequence[str]) -> dict[str, Any]:
    """The attributes of a composite: listed attributes of the module, and arguments of the call that are no tensors.

    Such arguments must be attributes, because a kernel that replaces the body does not see its constants.
    """
    attributes = dict(module.attributes)
    for scalar in scalars:
        name, _, text = scalar.partition("=")
        try:
            value = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(text)
            value = ast.literal_eval(text) if value is None else value
        except (ValueError, SyntaxError):
            raise TypeError(
                f"argument {name!r} of the composite {module.composite!r} in {module.path!r} is {text}; it becomes an "
                "attribute of the composite, so it must be a number, bool, str, or a list or dict of these"
            ) from None
        if name in attributes and attributes[name] != value:
            raise TypeError(
                f"the composite {module.composite!r} in {module.path!r} has the attribute {name}={attributes[name]!r} "
                f"and is called with the argument {name}={value!r}; rename one of the two"
            )
        attributes[name] = value
    return attributes

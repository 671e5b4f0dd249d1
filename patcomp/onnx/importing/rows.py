"""The tables of the ops of ONNX: a row is a function of PyTorch, with the inputs and attributes as its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from patcomp.onnx.importing.values import KnownArray, OnnxValue, as_numbers, as_tensor

MICROSOFT = "com.microsoft"
"""The domain of the contributed ops of ONNX Runtime."""

OWN_FORMS = "patcomp"
"""The domain of forms that ops get while a file is read."""

OnnxRow = Callable[..., Any]

IMPORTED_OPS: dict[tuple[str, str], OnnxRow] = {}
"""The functions on tensors, by domain and op."""
ON_NUMBERS: dict[str, OnnxRow] = {}
"""The functions on known numbers, of ops that files compute sizes with: numpy's, on arrays of objects."""

Ints = list[Any]
"""Numbers that must be known; a parameter with this annotation gets a list."""
KnownNumber = Any
"""One number that must be known."""
Operand = Any
"""A tensor, or one known number of the same element type, which becomes a number of the program."""


@dataclass(frozen=True)
class NodeCall:
    """What a row is told of its node. A row with a parameter `node` gets it."""

    opset: int
    """The version of the ops of its domain in the file."""
    outputs: int
    """How many outputs the node has."""
    outer: Mapping[str, OnnxValue]
    """The values around the node, which graphs that are its attributes may name."""
    run: Callable[..., Sequence[OnnxValue]]
    """Runs a graph that is an attribute: `run(graph, inputs)`; a third argument has other tensors around it."""


def onnx_op(*names: str, domain: str = "") -> Callable[[OnnxRow], OnnxRow]:
    """Declare the row of ops.

    The parameters are the inputs of the op in order, and its attributes by name. An input that older versions have as
    an attribute is one parameter. An attribute that the function does not have is refused.
    """

    def declare(row: OnnxRow) -> OnnxRow:
        for name in names:
            assert (domain, name) not in IMPORTED_OPS, name
            IMPORTED_OPS[domain, name] = row
        return row

    return declare


def on_numbers(*names: str) -> Callable[[OnnxRow], OnnxRow]:
    """Declare how an op computes with known numbers. Each array is an input, as objects."""

    def declare(row: OnnxRow) -> OnnxRow:
        ON_NUMBERS.update(dict.fromkeys(names, row))
        return row

    return declare


def why_not_bound(row: OnnxRow, inputs: int, attributes: Mapping[str, Any]) -> str:
    """Why a row does not take so many inputs and these attributes; empty if it does."""
    try:
        signature = inspect.signature(row)
        signature.bind(*[None] * inputs, **_with_node(signature, attributes, None))
    except TypeError as error:
        return f"patcomp does not know this form of the op: {error}"
    return ""


def call_row(row: OnnxRow, inputs: Sequence[OnnxValue], attributes: Mapping[str, Any], node: NodeCall) -> Any:
    """What a row gives, on inputs and attributes in the forms that its parameters ask for.

    Raises:
        Exception: whatever PyTorch raises.
    """
    signature = inspect.signature(row)
    bound = signature.bind(*inputs, **_with_node(signature, attributes, node))
    rank = max((each.dim() for each in inputs if isinstance(each, Tensor)), default=0)
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        form = _FORMS.get(_annotation(parameter).removesuffix(" | None"))
        if form is None or value is None:
            continue
        if form is _operand:
            form = partial(_operand, rank=rank, beside_a_tensor=_has_tensor_operand(bound))
        many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        bound.arguments[name] = tuple(map(form, value)) if many else form(value)
    return row(*bound.args, **bound.kwargs)


def _annotation(parameter: inspect.Parameter) -> str:
    """What a parameter asks for; a tensor, if it does not say it."""
    return "Tensor" if parameter.annotation is parameter.empty else str(parameter.annotation)


def _with_node(signature: inspect.Signature, attributes: Mapping[str, Any], node: NodeCall | None) -> dict[str, Any]:
    return {**attributes, "node": node} if "node" in signature.parameters else dict(attributes)


def _number(value: Any) -> Any:
    (number,) = as_numbers(value)
    return number


def _has_tensor_operand(bound: inspect.BoundArguments) -> bool:
    """Whether one operand is a tensor, whose element type numbers take."""
    parameters = bound.signature.parameters
    return any(
        isinstance(value, Tensor) and (name == "x" or _annotation(parameters[name]).startswith("Operand"))
        for name, value in bound.arguments.items()
    )


def _operand(value: OnnxValue, rank: int, beside_a_tensor: bool) -> Any:
    """One number has no axes, so that an epsilon is no weight, unless its axes would be axes of the result."""
    if not (isinstance(value, KnownArray) and value.is_one and value.values.ndim <= rank):
        return as_tensor(value)
    return value.number if beside_a_tensor else torch.scalar_tensor(value.number, dtype=value.dtype)


_FORMS: dict[str, Callable[..., Any]] = {
    "Tensor": as_tensor,
    "Ints": as_numbers,
    "KnownNumber": _number,
    "Operand": _operand,
}

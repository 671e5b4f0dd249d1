"""What goes into and comes out of an exported program: inputs, constants, outputs, and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument, TensorArgument
from torch.fx import Node

from patcomp.errors import Problem, UnsupportedError


@dataclass(frozen=True)
class Signature:
    """The interface of one entry point.

    `inputs` and `outputs` are FX node names in order; `constants` maps the placeholder of each parameter,
    buffer or lifted constant to its path and tensor; `fixed_inputs` are Python values that export
    specialised, `fixed_outputs` the positions of outputs that are Python values (None, int, ...).
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, tuple[str, torch.Tensor]]
    fixed_inputs: dict[str, Any] = field(default_factory=dict)
    fixed_outputs: dict[int, Any] = field(default_factory=dict)


def signature_of(program: ExportedProgram) -> Signature:
    """Reads the signature of an exported program without touching it.

    Raises:
        UnsupportedError: mutated buffers or inputs, dynamic sizes, custom objects: all of them listed.
    """
    problems: list[Problem] = []
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: list[str] = []
    constants: dict[str, tuple[str, torch.Tensor]] = {}
    fixed: dict[str, Any] = {}
    mutated = set(signature.buffers_to_mutate.values())
    for spec in signature.input_specs:
        if spec.kind == InputKind.TOKEN:
            continue  # orders ops with effects; those that are more than checks are reported as unsupported
        name = getattr(spec.arg, "name", "")
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            assert spec.target is not None
            if spec.target in mutated:
                continue  # reported with the outputs
            source = program.constants if spec.target not in program.state_dict else program.state_dict
            constants[name] = (spec.target, source[spec.target])
        elif isinstance(spec.arg, ConstantArgument):
            fixed[name] = spec.arg.value
        elif isinstance(spec.arg, TensorArgument):
            inputs.append(name)
            problems += _layout(placeholders[name]) or _dynamic_sizes(placeholders[name])
        else:
            kind = "a dynamic integer" if isinstance(spec.arg, SymIntArgument) else spec.kind.name.lower()
            problems.append(Problem(f"input {name!r} is {kind}, which is not supported yet", node=name))
    outputs: list[str] = []
    fixed_outputs: dict[int, Any] = {}
    for spec in signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            if isinstance(spec.arg, TensorArgument):
                outputs.append(spec.arg.name)
            elif isinstance(spec.arg, ConstantArgument):
                fixed_outputs[len(outputs) + len(fixed_outputs)] = spec.arg.value
            else:
                problems.append(Problem("an output that is a dynamic integer is not supported yet"))
        elif spec.kind != OutputKind.TOKEN:
            what = "buffer" if spec.kind == OutputKind.BUFFER_MUTATION else "input"
            problems.append(
                Problem(
                    f"the model changes its {what} {spec.target!r} in place; state is not supported yet",
                    node=getattr(spec.arg, "name", ""),
                    advice="return the new value as an output instead of writing it in place",
                )
            )
    if problems:
        raise UnsupportedError("the program's inputs or outputs cannot be converted:", problems)
    return Signature(tuple(inputs), tuple(outputs), constants, fixed, fixed_outputs)


def _layout(node: Node) -> list[Problem]:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
        layout = str(value.layout).removeprefix("torch.")
        return [Problem(f"input {node.name!r} is {layout}; only dense tensors can be converted", node=node.name)]
    return []


def _dynamic_sizes(node: Node) -> list[Problem]:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and any(not isinstance(size, int) for size in value.shape):
        shape = "x".join(str(size) for size in value.shape)
        return [
            Problem(
                f"input {node.name!r} has the dynamic shape {shape}; dynamic shapes are not supported yet",
                node=node.name,
                advice="export with example inputs of the shape you need and without dynamic_shapes=",
            )
        ]
    return []


def check_names(
    what: str, given: Sequence[str] | None, expected: Sequence[str], *, unique_defaults: bool = False
) -> tuple[str, ...]:
    """The names of the inputs or outputs: the given ones, or the defaults.

    Args:
        what: `"input"`, `"output"` or `"state"`, for messages.
        given: the user's names; None or empty for the defaults.
        expected: default names, one for each input or output.
        unique_defaults: make repeated default names distinct (an output returned twice).

    Raises:
        TypeError: the names are one string, or one of them is not a string.
        ValueError: their number is wrong, or one is empty, repeated, or has a control character.
    """
    if isinstance(given, str):
        raise TypeError(f"{what}_names must be a list of names, got the string {given!r}")
    if not given:
        return _distinct(expected) if unique_defaults else tuple(expected)
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"{what}_names must hold strings, got {name!r}")
    if len(given) != len(expected):
        plural = "stateful inputs" if what == "state" else f"live {what}s"
        raise ValueError(
            f"Graph has {len(expected)} {plural} ({list(expected)}), but {what}_names has "
            f"{len(given)} entries ({list(given)})"
        )
    repeated = sorted({name for name in given if list(given).count(name) > 1})
    bad = [name for name in given if not name.strip() or re.search(r"[\x00-\x1f\x7f]", name)]
    if repeated or bad:
        parts = [f"repeats {repeated}" if repeated else "", f"has unusable names {bad}" if bad else ""]
        raise ValueError(f"{what}_names {list(given)} " + " and ".join(part for part in parts if part))
    return tuple(given)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    taken: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken or (candidate != name and candidate in names):
            candidate, number = f"{name}_{number}", number + 1
        taken.add(candidate)
        result.append(candidate)
    return tuple(result)

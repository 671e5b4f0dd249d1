"""Aliased tensors: export may lose that two names share memory, or merge two separate tensors."""

from __future__ import annotations

import copy

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from patcomp.errors import Problem
from patcomp.pytorch import FakeTensor, is_traceable_wrapper_subclass


def used_once(program: ExportedProgram) -> ExportedProgram:
    """The program, or a copy in which unused buffers share no memory with others.

    Export uses only one name of a tensor with several names, but PyTorch cannot decompose a program that writes to the
    tensor and also has the other names. The given program is not changed.
    """
    own: dict[str, torch.Tensor] = {}
    tensors = _tensors(program)
    for paths in _sharing(program).values():
        unused = [path for path, (kind, node) in paths.items() if not node.users and kind != InputKind.PARAMETER]
        own |= {path: torch.empty_like(tensors[path]) for path in unused}
    if not own:
        return program
    apart = copy.copy(program)
    for held in ("_state_dict", "_constants"):
        setattr(apart, held, {path: own.get(path, value) for path, value in getattr(program, held).items()})
    return apart


def shared_tensors(program: ExportedProgram) -> list[Problem]:
    """The buffers and constants that share memory: the program would miss a write through the other name.

    Tied parameters are not among them.
    """
    return [
        Problem(
            f"{' and '.join(map(repr, paths))} share memory, but export treats them as separate tensors",
            advice="read and write a tensor through one buffer of the module; a cache object of transformers needs "
            "torch.export.export(..., strict=True)",
        )
        for paths in _sharing(program).values()
        if any(kind != InputKind.PARAMETER for kind, _ in paths.values())
    ]


def names_of_shared(program: ExportedProgram) -> set[str]:
    """The names of the placeholders of parameters, buffers and constants that share memory with others."""
    return {node.name for paths in _sharing(program).values() for _, node in paths.values()}


def _sharing(program: ExportedProgram) -> dict[int, dict[str, tuple[InputKind, Node]]]:
    """The kind and placeholder of each tensor that shares memory, by path, grouped by address."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = {spec.target: (spec.kind, nodes[spec.arg.name]) for spec in program.graph_signature.input_specs}
    groups: dict[int, dict[str, tuple[InputKind, Node]]] = {}
    for path, value in _tensors(program).items():
        if path in inputs and value.numel():
            groups.setdefault(value.untyped_storage().data_ptr(), {})[path] = inputs[path]
    return {address: paths for address, paths in groups.items() if len(paths) > 1}


def _tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The parameters, buffers and constants with memory of their own: no fake tensors, no wrapper subclasses."""
    held = {**program.state_dict, **program.constants}
    tensors = {path: v for path, v in held.items() if isinstance(v, torch.Tensor) and not isinstance(v, FakeTensor)}
    return {path: v for path, v in tensors.items() if not is_traceable_wrapper_subclass(v)}

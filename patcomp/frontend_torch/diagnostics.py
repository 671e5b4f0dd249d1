"""Warnings about a staged program: it converts, but may not be the program that the user expects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from patcomp.errors import Problem
from patcomp.frontend_torch.externalization.externalize import Marking
from patcomp.frontend_torch.fx.dtypes import has_values
from patcomp.frontend_torch.fx.nodes import operator_name, producer_of
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface import value_checks
from patcomp.frontend_torch.interface.core_ml import CompressedWeight
from patcomp.frontend_torch.interface.names import quoted_names
from patcomp.frontend_torch.interface.signature import Signature


def diagnostics(staged: Staged, marking: Marking | None) -> tuple[Problem, ...]:
    """The warnings about a program, in a fixed order; those that it has already are about dynamic dimensions."""
    program, signature = staged.program, staged.signature
    texts = [*(marking.complaints(program) if marking else ()), *_same_examples(program, signature)]
    return (
        *map(Problem, texts),
        *staged.diagnostics,
        *value_checks.warning(staged.checks),
        *_without_values(program, signature),
        *_training(program, signature),
        *_described_wrongly(signature, staged.compressed),
        *_unread_compression(program, signature),
    )


def _same_examples(program: ExportedProgram, signature: Signature) -> Iterator[str]:
    """Complaints about inputs whose example is the tensor of another input or of a buffer, if one of the two is unused.

    Export merges two such tensors, so the program would compute with the wrong one.
    """
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    groups: dict[int, list[str]] = {}
    for name, example in signature.examples(program).items():
        if isinstance(example, torch.Tensor):
            groups.setdefault(id(example), []).append(name)
    held = [(name, tensor) for name, (_, tensor) in signature.constants.items()]
    held += [(state.placeholder, state.initial) for state in signature.states if state.initial is not None]
    for name, tensor in held:
        if id(tensor) in groups:
            groups[id(tensor)].append(name)
    for names in groups.values():
        if used.intersection(names) and not used.issuperset(names):
            lost = ", ".join(repr(name) for name in names if name not in used)
            yield (
                f"inputs {', '.join(map(repr, names))} were exported with the same tensor as the example, so PyTorch "
                f"replaced {lost} by another of them; pass a separate tensor for each, example.clone()"
            )


def _without_values(program: ExportedProgram, signature: Signature) -> Iterator[Problem]:
    """Weights that are fake or on the meta device, if the program reads them."""
    used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    read = (weight for name, weight in signature.constants.items() if name in used)
    if unknown := [path for path, value in read if not has_values(value)]:
        yield Problem(
            f"the weights {quoted_names(unknown)} have no values, because they are fake or on the meta device: the "
            "program has a text, but cannot be run or saved",
            advice="give the model its weights before it is exported: model.to_empty(device='cpu') and "
            "model.load_state_dict(...)",
        )


def _training(program: ExportedProgram, signature: Signature) -> Iterator[Problem]:
    """Batch norms whose running statistics are state, because they were exported in training mode."""
    nodes = {node.name: node for node in program.graph.nodes}
    buffers = {state.target: nodes[state.result] for state in signature.states if state.is_buffer}
    statistics = [
        path
        for path, result in buffers.items()
        if _is_of_batch_norm(result)
        or (path.endswith("running_mean") and path.replace("running_mean", "num_batches_tracked") in buffers)
    ]
    modules = list(dict.fromkeys(path.rpartition(".")[0] or path for path in statistics))
    if modules:
        several = len(modules) > 1
        yield Problem(
            f"the batch norm{'s' * several} {quoted_names(modules)} {'are' if several else 'is'} in training mode: the "
            "program normalizes with the statistics of each batch, and its running statistics are states",
            advice="call model.eval() before torch.export.export, unless the program is for training",
        )


def _is_of_batch_norm(node: Node) -> bool:
    return "batch_norm" in operator_name(producer_of(node))


def _described_wrongly(signature: Signature, compressed: Mapping[str, CompressedWeight | str]) -> Iterator[Problem]:
    """Weights with inconsistent Core ML buffers: the described compression does not reproduce the floats."""
    tensors = dict(signature.constants.values())
    reasons: dict[str, list[str]] = {}
    for name, reason in compressed.items():
        if isinstance(reason, str):
            reasons.setdefault(reason, []).append(signature.constants[name][0])
    for reason, paths in reasons.items():
        yield Problem(
            f"the weights {quoted_names(paths)} become floats of {_bytes(tensors, paths)}, because the buffers "
            f"`_COREML_/...` beside them do not say how they are compressed: {reason}",
            advice="the results are right, only the asset is large; export the model as the library finalized it",
        )


_WORD = re.compile(r"scale|zero_?point|zeros|lut|code_?book|palette|absmax")
_DESCRIPTION = re.compile(rf"[._][\w.]*({_WORD.pattern})\w*")
"""The suffixes of tensors that describe how a weight is compressed: `fc.weight_scale` for `fc.weight`."""


def _unread_compression(program: ExportedProgram, signature: Signature) -> Iterator[Problem]:
    """Float weights with buffers that describe their compression, if the program reads none of these buffers."""
    used = {node.name for node in program.graph.find_nodes(op="placeholder") if node.users}
    tensors = dict(signature.constants.values())
    read = {path for name, (path, _) in signature.constants.items() if name in used}
    weights = [path for path in read if tensors[path].is_floating_point()]
    candidates = [path for path in tensors if _WORD.search(path)]
    described = {
        weight: descriptions
        for weight in weights
        if (descriptions := [path for path in candidates if _describes(path, weight)]) and read.isdisjoint(descriptions)
    }
    if found := sorted(described):
        unread = sorted(path for weight in found for path in described[weight])
        yield Problem(
            f"the weights {quoted_names(found)} become floats of {_bytes(tensors, found)}: the program does not read "
            f"{quoted_names(unread)}, which by their names describe how they are compressed",
            advice="check that the exported model computes with them; an asset has only tensors that its program reads",
        )


def _describes(path: str, weight: str) -> bool:
    return path.startswith(weight) and _DESCRIPTION.fullmatch(path, len(weight)) is not None


def _bytes(tensors: dict[str, torch.Tensor], paths: list[str]) -> str:
    return f"{sum(tensors[path].nbytes for path in paths):,} bytes"

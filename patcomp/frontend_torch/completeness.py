"""Exported programs that other tools left incomplete: nodes without a recorded result, weights without values."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.diagnostics import listed
from patcomp.frontend_torch.fx.nodes import is_untyped, operator_name, writes_in_place
from patcomp.frontend_torch.fx.provenance import Origins
from patcomp.pytorch import FakeTensor


def check_complete(program: ExportedProgram) -> None:
    """Check that used nodes have types and that weights have values.

    A dead node may lack `meta["val"]`, because the import skips it.

    Raises:
        UnsupportedError: a type or value is missing; the message lists all of them.
    """
    dead: set[Node] = set()
    used: list[Node] = []
    for node in filter(is_untyped, reversed(program.graph.nodes)):
        if dead.issuperset(node.users):
            dead.add(node)
        else:
            used.insert(0, node)
    origins = Origins(program.graph)
    problems = [
        origins[node].problem(
            operator_name(node),
            "the node has no meta['val'], which records the shape and element type of its result",
            "let the graph pass that made it set node.meta['val'], or export the model again after the change",
        )
        for node in used
    ]
    problems += _without_values(program)
    if problems:
        raise UnsupportedError("the exported program is incomplete:", problems)


def _without_values(program: ExportedProgram) -> Iterator[Problem]:
    """The weights whose values are not in memory: they are on the meta device or made in `FakeTensorMode`.

    A constant that the model writes to is fake, too, but PyTorch's own error about the write is more precise.
    """
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    users = {node.name: tuple(node.users) for node in program.graph.find_nodes(op="placeholder")}
    tensors = {**program.constants, **program.state_dict}
    meta: list[str] = []
    fake: list[str] = []
    for spec in program.graph_signature.input_specs:
        value = tensors.get(spec.target) if spec.kind in kinds and users[spec.arg.name] else None
        if isinstance(value, FakeTensor):
            if spec.kind is InputKind.CONSTANT_TENSOR and any(map(writes_in_place, users[spec.arg.name])):
                continue
            fake.append(str(spec.target))
        elif isinstance(value, torch.Tensor) and value.is_meta:
            meta.append(str(spec.target))
    if meta:
        yield Problem(
            f"the weights {listed(meta)} are on the meta device and have no values",
            advice="give the model its weights before it is exported: model.to_empty(device='cpu') and "
            "model.load_state_dict(...)",
        )
    if fake:
        yield Problem(
            f"the weights {listed(fake)} are fake tensors and have no values",
            advice="make the model outside of FakeTensorMode, or put its real tensors into program.state_dict",
        )

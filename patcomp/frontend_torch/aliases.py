"""Tensors under two names: PyTorch's export loses that two are one, or takes two for one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from patcomp.errors import Problem
from patcomp.frontend_torch.signature import Signature


def shared_tensors(program: ExportedProgram) -> list[Problem]:
    """The buffers and constants that share memory with others: of a write to one, the program would not see the other.

    Tied parameters are not among them.
    """
    groups: dict[int, list[str]] = {}
    kinds = {spec.target: spec.kind for spec in program.graph_signature.input_specs if spec.target is not None}
    for path, value in {**program.state_dict, **program.constants}.items():
        if path in kinds and isinstance(value, torch.Tensor) and value.numel():
            groups.setdefault(value.untyped_storage().data_ptr(), []).append(path)
    return [
        Problem(
            f"{' and '.join(map(repr, paths))} are one tensor, which export takes for several",
            advice="read and write a tensor through one buffer of the module; a cache object of transformers needs "
            "torch.export.export(..., strict=True)",
        )
        for paths in groups.values()
        if len(paths) > 1 and any(kinds[path] != InputKind.PARAMETER for path in paths)
    ]


def same_examples(program: ExportedProgram, signature: Signature) -> Iterator[str]:
    """Complaints about inputs that were exported with the same tensor object, if one of them is not used.

    Export takes two such inputs for one, so the program would compute with the wrong one.
    """
    if program.example_inputs is None:
        return
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    examples = program.call_spec.in_spec.flatten_up_to(program.example_inputs)  # type: ignore[union-attr]
    groups: dict[int, list[str]] = {}
    for name, example in zip(signature.user_inputs, examples, strict=True):
        if isinstance(example, torch.Tensor):
            groups.setdefault(id(example), []).append(name)
    for names in groups.values():
        if used.intersection(names) and not used.issuperset(names):
            lost = ", ".join(repr(name) for name in names if name not in used)
            yield (
                f"inputs {', '.join(map(repr, names))} were exported with one tensor as the example, and PyTorch "
                f"takes {lost} for another of them; give each a tensor of its own, example.clone()"
            )

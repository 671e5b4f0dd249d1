"""Proofs of conversions: each stage's program equals the program before it, for all inputs.

    proof = program.prove()
    print(proof)

A proof of a rule (`patcomp_lab.proof`) is about small programs. This one is about the program that was converted, and
all that its stages did: rules, and the code between them that rebuilds, outlines, folds, merges and removes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from patcomp.interface.graphs import argument_types
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.types import TensorType, is_static
from patcomp.program.history import History, known_history
from patcomp.program.proof_of_run import Equality, ProofOfRun, StageProof, Unproved
from patcomp_lab.proof.run.draws import draws_of
from patcomp_lab.proof.run.flat import Flat, NotComparedError, flat
from patcomp_lab.proof.run.stages import PartNumbers, StageComparison
from patcomp_lab.proof.run.values import Classes, StageProgram


def prove(program: Any, inputs: Any = None, entrypoint: str | None = None) -> ProofOfRun:
    """`AIProgram.prove`."""
    modules: dict[str, IRModule] = {}
    history = known_history(program.history)
    history.repeated(lambda stage, module: modules.__setitem__(stage, module.clone()))
    if not history.later:
        modules["emit"] = program.module
    entries = [graph_name(graph) for graph in modules["import"].entry_graphs]
    chosen = [entry for entry in entries if entrypoint in (None, entry)]
    if not chosen:
        raise LookupError(f"no entry point {entrypoint!r} was converted; there are {', '.join(entries)}")
    if inputs is not None and len(chosen) > 1:
        raise ValueError(f"inputs are for one entry point; name it with entrypoint=, one of {', '.join(entries)}")
    with torch.no_grad():
        draws = {entry: draws_of(program, modules["import"], entry, inputs) for entry in chosen}
        sizes = {entry: text for entry in chosen if (text := _sizes(modules["import"], entry, draws[entry][0]))}
        return ProofOfRun({entry: _stages(history, modules, entry, draws[entry]) for entry in chosen}, sizes)


def _sizes(imported: IRModule, entry: str, inputs: Mapping[str, Any]) -> str:
    """The shapes of inputs whose sizes are open."""
    types = argument_types(imported.graph(entry)).items()
    is_open = [name for name, type_ in types if isinstance(type_, TensorType) and not is_static(type_)]
    return ", ".join(f"{name} of shape {tuple(inputs[name].shape)}" for name in is_open)


def _stages(
    history: History, modules: Mapping[str, IRModule], entry: str, draws: list[dict[str, Any]]
) -> list[StageProof]:
    """The proofs of the stages of an entry point, each of which has the module of its name."""
    contents: dict[Any, Any] = {}
    made: list[StageProof] = []
    last: tuple[Flat, IRModule, PartNumbers] | None = None
    for stage, module in modules.items():
        try:
            after_flat = flat(module, entry)
        except NotComparedError as error:
            made.append(StageProof(stage, Equality.UNDECIDED, unproved=(Unproved("", "", reason=str(error)),)))
            break
        classes = Classes(contents=contents)
        after = StageProgram(after_flat, classes, history.unlowered(module))
        numbers = [after.numbers(inputs) for inputs in draws]
        if last is not None:
            before_flat, before_module, numbers_before = last
            before = StageProgram(before_flat, classes, history.unlowered(before_module))
            before.classify_all()
            made.append(StageComparison(stage, before, after, numbers_before, numbers).proof())
        last = after_flat, module, numbers
    unproved = Unproved("", "", reason="it changes numbers, and is not compared; prove the program before it")
    return [*made, *(StageProof(stage, Equality.UNDECIDED, unproved=(unproved,)) for stage in history.later)]

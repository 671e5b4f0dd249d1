"""The way in: the steps after which an exported program is ready for import.

Each step takes the program in hand and gives it back with one more thing done or known. No step changes what the user
passed in: a step that changes the graph gives a copy. Each op is decomposed once, in one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch.export import ExportedProgram

from patcomp.errors import PatcompError, Problem, UnsupportedError
from patcomp.frontend_torch.completeness import check_complete, preparing
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.custom.skeleton import is_of_custom_op
from patcomp.frontend_torch.decomposition.decompose import DRAWS, Decomposer
from patcomp.frontend_torch.diagnostics import diagnostics
from patcomp.frontend_torch.externalization.externalize import Marking
from patcomp.frontend_torch.functional.programs import functional
from patcomp.frontend_torch.functional.random_inputs import with_random_inputs
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface.core_ml import described_weights
from patcomp.frontend_torch.interface.dims import dims_of, with_sizes
from patcomp.frontend_torch.interface.names import names_for
from patcomp.frontend_torch.interface.signature import program_signature
from patcomp.frontend_torch.interface.value_checks import value_checks
from patcomp.patterns import RuleSet
from patcomp.pytorch import default_settings


class ProgramTypeError(PatcompError, TypeError, AttributeError):
    """The argument is not an `ExportedProgram`."""


@dataclass(frozen=True)
class Request:
    """An exported program as the user gave it, as the arguments of `TorchConverter.add_exported_program`."""

    program: ExportedProgram
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    state_names: Sequence[str] | None
    name: str
    mutated_inputs: Literal["state", "output"]
    marking: Marking | None = None
    """Of a module that patcomp had exported: its externalized modules. None for an exported program."""

    def __post_init__(self) -> None:
        if self.mutated_inputs not in ("state", "output"):
            raise ValueError(f"mutated_inputs must be 'state' or 'output', got {self.mutated_inputs!r}")
        if not isinstance(self.program, ExportedProgram):
            raise ProgramTypeError(
                f"expected a torch.export.ExportedProgram, got {type(self.program).__name__}; export the module with "
                "torch.export.export(model, args), or use add_pytorch_module(model, export_fn=...)"
            )

    def __str__(self) -> str:
        kind = "ExportedProgram" if self.marking is None else "nn.Module"
        labels = self.marking.labels if self.marking else ()
        externalized = f", externalize={list(labels)}" if labels else ""
        return f"{self.name}: {kind} {list(self.input_names or [])} -> {list(self.output_names or [])}{externalized}"


@dataclass(frozen=True)
class Choices:
    """What a converter decides for all its programs."""

    rules: RuleSet
    lowerings: Lowerings
    """The registered lowerings; their ops stay whole."""
    random_inputs: bool
    """Whether the random numbers that a program draws become inputs."""


_TURN = threading.RLock()
"""Threads take turns: nodes are traced in the program's own `FakeTensorMode`, which counts where it was entered."""


def ready_for_import(request: Request, choices: Choices) -> Staged:
    """The program of a request after all steps.

    Raises:
        UnsupportedError: ops, inputs or outputs of the program cannot be converted; the message lists all of them.
        ValueError: there are too many or too few names, or a name is repeated or empty.
    """
    with _TURN, default_settings(), preparing(request.program):
        staged = Staged(name=request.name, program=request.program, lowerings=tuple(choices.lowerings))
        for step in STEPS:
            staged = step(staged, request, choices)
        return staged


def _complete(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Check that the graph fits its signature, and has the values and types that the later steps read."""
    check_complete(staged.program)
    return staged


def _functional(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Writes in place become values, and graphs that only switch a mode become part of the graph around them."""
    try:
        program, left = functional(staged.program, choices.lowerings)
    except UnsupportedError as error:
        problems = [*program_signature(staged.program)[1], *error.problems]
        raise UnsupportedError(str(error).partition("\n")[0], problems) from error
    return replace(staged, program=program, left_to_pytorch=left)


def _random_inputs(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Random numbers that the program draws become inputs, if the user wants this."""
    if not choices.random_inputs:
        return staged
    program, draws, conditions = with_random_inputs(staged.program, choices.lowerings)
    signature = replace(staged.signature, draws=draws)
    return replace(staged, program=program, signature=signature, conditions=tuple(conditions))


def _signature(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Read the program's inputs, outputs, states and weights."""
    signature, problems = program_signature(staged.program, request.mutated_inputs, staged.signature.draws)
    return replace(staged, signature=signature, problems=tuple(problems))


def _sizes(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Name the dynamic sizes; a slice that is shorter at small sizes gets a dynamic length."""
    if staged.problems:
        return staged  # its inputs may be of any kind
    program, sizes = with_sizes(staged.program, staged.signature, request.program)
    return replace(staged, program=program, sizes=sizes)


def _decomposition(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Decompose the ops that no rule takes; all that cannot be converted is reported here."""
    decomposer = Decomposer(choices.rules, choices.lowerings)
    expansions, unsupported, conditions = decomposer.expansions(staged.program)
    if staged.problems or not all(map(is_of_custom_op, unsupported)):
        raise UnsupportedError(headline(unsupported), [*unsupported, *staged.problems])
    conditions = [*staged.conditions, *conditions]
    return replace(staged, expansions=expansions, conditions=tuple(conditions), problems=tuple(unsupported))


def _names(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Inputs, outputs and states get the names of the user, or their own."""
    names = names_for(staged.signature, request.input_names, request.output_names, request.state_names)
    return replace(staged, names=names)


def _dims(staged: Staged, request: Request, choices: Choices) -> Staged:
    """State the dynamic dimensions by these names, with all conditions on them."""
    own = staged.names.of_arguments(staged.signature)
    dims, warnings = dims_of(staged.program, request.program, staged.sizes, own, staged.conditions)
    return replace(staged, dims=dims, diagnostics=tuple(warnings))


def _compressed(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Find the weights whose buffers say how they are compressed."""
    return replace(staged, compressed=described_weights(staged.program, staged.signature))


def _checks(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Find what the program checks of values."""
    return replace(staged, checks=value_checks(staged.program, staged.signature, staged.names))


def _warnings(staged: Staged, request: Request, choices: Choices) -> Staged:
    """Find what the user may not expect of the program."""
    return replace(staged, diagnostics=diagnostics(staged, request.marking))


STEPS: tuple[Callable[[Staged, Request, Choices], Staged], ...] = (
    _complete,  # first, because every step relies on it
    _functional,  # before anything is read from the graph: a tensor that is written in place has several values
    _random_inputs,  # of values; before the signature, which has these inputs
    _signature,
    _sizes,  # before decomposition, which sees the lengths that become dynamic
    _decomposition,  # before anything is said of names, so that all that cannot be converted is said first
    _names,
    _dims,  # by the names, under the conditions of the decompositions
    _compressed,
    _checks,
    _warnings,  # last: about what the steps found
)
"""The steps in order."""


def headline(problems: Sequence[Problem]) -> str:
    """The first line of a report of problems."""
    unsupported = [problem for problem in problems if problem.message.startswith("unsupported op")]
    draw = sorted({problem.op for problem in unsupported if problem.message.endswith(DRAWS)})
    others = sorted({problem.op for problem in unsupported} - {*draw})
    kind = "ATen ops" if all(op.startswith("aten.") for op in others) else "ops"
    named = f"; unsupported {kind}: {', '.join(others)}" if others else ""
    drawn = f'; it draws random numbers, for which there is random="inputs": {", ".join(draw)}' if draw else ""
    return f"the program cannot be converted{named}{drawn}:"

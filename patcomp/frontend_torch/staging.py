"""Staging: an exported program as the user gave it, and what it takes until it is ready for import."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch.export import ExportedProgram

from patcomp.errors import ConversionWarning, PatcompError, Problem, UnsupportedError
from patcomp.frontend_torch.completeness import check_complete, preparing
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.custom.skeleton import is_of_custom_op
from patcomp.frontend_torch.decomposition.decompose import DRAWS, Decomposer
from patcomp.frontend_torch.diagnostics import diagnostics
from patcomp.frontend_torch.externalization.externalize import Marking
from patcomp.frontend_torch.functional.programs import functional
from patcomp.frontend_torch.functional.random_inputs import with_random_inputs
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface.core_ml import compressed_weights
from patcomp.frontend_torch.interface.dims import dims_of
from patcomp.frontend_torch.interface.names import check_entrypoint, names_for
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

    def prepared(self, rules: RuleSet, lowerings: Lowerings, *, random_inputs: bool) -> Staged:
        """The program, ready for import by a converter with these rules and lowerings.

        Args:
            random_inputs: whether the random numbers that the program draws become inputs.

        Raises:
            UnsupportedError: ops, inputs or outputs of the program cannot be converted; the message lists all of them.
            ValueError: there are too many or too few names, or a name is repeated or empty.
        """
        with default_settings(), preparing(self.program):
            return self._prepared(rules, lowerings, random_inputs)

    def _prepared(self, rules: RuleSet, lowerings: Lowerings, random_inputs: bool) -> Staged:
        check_complete(self.program)
        try:
            before, left = functional(self.program, lowerings)
        except UnsupportedError as error:
            problems = [*program_signature(self.program)[1], *error.problems]
            raise UnsupportedError(str(error).partition("\n")[0], problems) from error
        before, draws, asked_by_draws = with_random_inputs(before, lowerings) if random_inputs else (before, {}, [])
        decomposer = Decomposer(rules, lowerings)
        expansions, unsupported, asked = decomposer.expansions(before)
        signature, problems = program_signature(before, self.mutated_inputs, draws)
        if problems or not all(map(is_of_custom_op, unsupported)):
            raise UnsupportedError(headline(unsupported), [*unsupported, *problems])
        names = names_for(signature, self.input_names, self.output_names, self.state_names)

        def converts(changed: ExportedProgram) -> bool:
            """Whether a copy of the program converts, under no further conditions."""
            _, left_over, more = decomposer.expansions(changed)
            return left_over == unsupported and set(more) <= set(asked)

        program, dims, of_sizes = dims_of(before, signature, names, converts, self.program, [*asked_by_draws, *asked])
        if program is not before:
            expansions, *_ = decomposer.expansions(program)
        compressed, checks = compressed_weights(program, signature), value_checks(program, signature, names)
        return Staged(
            name=self.name,
            program=program,
            signature=signature,
            names=names,
            expansions=expansions,
            compressed=compressed,
            dims=dims,
            checks=checks,
            diagnostics=diagnostics(program, signature, self.marking, of_sizes, checks, compressed),
            problems=tuple(unsupported),
            left_to_pytorch=left,
            lowerings=tuple(lowerings),
        )

    def __str__(self) -> str:
        kind = "ExportedProgram" if self.marking is None else "nn.Module"
        labels = self.marking.labels if self.marking else ()
        externalized = f", externalize={list(labels)}" if labels else ""
        return f"{self.name}: {kind} {list(self.input_names or [])} -> {list(self.output_names or [])}{externalized}"


class EntrypointError(PatcompError, ValueError, RuntimeError):
    """No program is staged under the given entry point name."""


class Staging:
    """The programs that a converter has staged, in order.

    Args:
        rules, lowerings: those of the converter, which may get further lowerings.
        random_inputs: whether random numbers that programs draw become inputs.
    """

    def __init__(self, rules: RuleSet, lowerings: Lowerings, *, random_inputs: bool):
        self.rules, self.lowerings, self.random_inputs = rules, lowerings, random_inputs
        self._requests: dict[str, Request] = {}
        self._prepared: dict[str, Staged] = {}

    def copy(self) -> Staging:
        """The same programs, staged for another converter."""
        made = Staging(self.rules, self.lowerings.copy(), random_inputs=self.random_inputs)
        made._requests, made._prepared = dict(self._requests), dict(self._prepared)
        return made

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests.values()))

    def check(self, name: str) -> None:
        """Check the entry point of a program that is not staged yet.

        Raises:
            TypeError: it is not a string.
            ValueError: it is empty, starts with `$`, has a control character, or is that of another program.
        """
        check_entrypoint(name)
        if name in self._requests:
            raise ValueError(f"a program with entrypoint_name={name!r} is already staged; names must be unique")

    def prepared(self, request: Request) -> Staged:
        """A program, ready for import. It is staged from now on, and prepared again if lowerings were registered since.

        Warns:
            ConversionWarning: at the caller of the converter: what was not issued about the program before.
        """
        known = self._prepared.get(request.name)
        if known is not None and known.lowerings == tuple(self.lowerings):
            return known
        found = request.prepared(self.rules, self.lowerings, random_inputs=self.random_inputs)
        for each in found.diagnostics:
            if known is None or each not in known.diagnostics:
                warnings.warn(str(each), ConversionWarning, stacklevel=3)
        self._requests[request.name], self._prepared[request.name] = request, found
        return found

    def selected(self, entrypoints: Sequence[str] | None) -> list[Request]:
        """The programs of some entry points, all by default.

        Raises:
            EntrypointError: a name is not staged.
            TypeError: the names are a string.
        """
        if entrypoints is None:
            return list(self)
        if isinstance(entrypoints, str):
            raise TypeError(f"entrypoints must be a list of names, got the string {entrypoints!r}")
        entrypoints = list(entrypoints)
        unknown = [name for name in entrypoints if name not in self._requests]
        if unknown:
            raise EntrypointError(f"no program is staged as {unknown}; staged are {list(self._requests) or 'none'}")
        return [request for name, request in self._requests.items() if name in entrypoints]

    def remove(self, requests: Iterable[Request]) -> None:
        """Forget programs."""
        for request in requests:
            del self._requests[request.name], self._prepared[request.name]


def headline(problems: Sequence[Problem]) -> str:
    """The first line of a report of problems."""
    unsupported = [problem for problem in problems if problem.message.startswith("unsupported op")]
    draw = sorted({problem.op for problem in unsupported if problem.message.endswith(DRAWS)})
    others = sorted({problem.op for problem in unsupported} - {*draw})
    kind = "ATen ops" if all(op.startswith("aten.") for op in others) else "ops"
    named = f"; unsupported {kind}: {', '.join(others)}" if others else ""
    drawn = f'; it draws random numbers, for which there is random="inputs": {", ".join(draw)}' if draw else ""
    return f"the program cannot be converted{named}{drawn}:"

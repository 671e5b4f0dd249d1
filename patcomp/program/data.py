"""What a converted program is: its IR, its weights, its interface, and how it came about."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from patcomp.errors import Problem, UnknownNameError, near_names
from patcomp.interface.checks import ValueChecks
from patcomp.interface.dims import Dims
from patcomp.interface.graphs import entry_signature
from patcomp.interface.signature import EntrySignature, ModelCall
from patcomp.ir.module import IRModule, graph_name
from patcomp.program.composite_calls import CompositeReport, composite_calls
from patcomp.program.history import History, Questions
from patcomp.program.summary import Summary, weight_sizes
from patcomp.settings import plain_settings

if TYPE_CHECKING:
    from patcomp.compression import CompressionReport
    from patcomp.evaluate.verification import Verification
    from patcomp.ir.coreai_op import CoreaiOp


@dataclass(eq=False)
class ProgramData(Questions):
    """What a Core AI program is: its IR, its weights, and how it came about; `str(program)` is the MLIR text.

    `AIProgram` describes the attributes.
    """

    module: IRModule
    calls: Mapping[str, ModelCall] = field(default_factory=dict)
    initial_state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dims: Mapping[str, Dims] = field(default_factory=dict)
    checks: Mapping[str, ValueChecks] = field(default_factory=dict)
    draws: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    diagnostics: tuple[Problem, ...] = ()
    left_to_pytorch: tuple[Problem, ...] = ()
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: float = 0.0
    history: History | None = None

    _compression: CompressionReport | None = None

    def __str__(self) -> str:
        return self.module.text()

    def __repr__(self) -> str:
        return f"<AIProgram {', '.join('@' + name for name in self.entrypoints)}: {self.module.op_count()} ops>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        initial = {entrypoint: MappingProxyType(self.new_state(entrypoint)) for entrypoint in self.initial_state}
        return replace(self, module=self.module.clone(), initial_state=initial)

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """The MLIR text: pretty or generic, with or without locations; weights appear by name only."""
        return self.module.text(generic=generic, locations=locations)

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The names of the graphs that can be called."""
        return tuple(graph_name(graph) for graph in self.module.entry_graphs)

    def graph(self, entrypoint: str) -> CoreaiOp:
        """The graph of an entry point.

        Raises:
            UnknownNameError: there is none; the message lists the entry points.
        """
        try:
            return self.module.graph(entrypoint)
        except KeyError:
            there = near_names(entrypoint, self.entrypoints)
            raise UnknownNameError(f"there is no entry point {entrypoint!r}; there are {there}") from None

    def input_names(self, entrypoint: str = "main") -> tuple[str, ...]:
        """The names of an entry point's inputs, in order, without the states."""
        return tuple(value.name for value in self.signature(entrypoint).inputs)

    def output_names(self, entrypoint: str = "main") -> tuple[str, ...]:
        """The names of an entry point's outputs, in order, without the states."""
        return tuple(value.name for value in self.signature(entrypoint).outputs)

    def signature(self, entrypoint: str = "main") -> EntrySignature:
        """The inputs, outputs and states of an entry point, with names, shapes and element types.

        Raises:
            KeyError: there is no such entry point.
        """
        checks = self.checks.get(entrypoint)
        texts, draws = checks.texts if checks else (), self.draws.get(entrypoint, {})
        graph, call, dims = self.graph(entrypoint), self.calls.get(entrypoint), self.dims.get(entrypoint)
        return entry_signature(graph, call, dims, texts, draws)

    def new_state(self, entrypoint: str = "main") -> dict[str, Any]:
        """Fresh copies of the initial contents of an entry point's buffers, for the calls of one sequence.

        Raises:
            KeyError: there is no such entry point.
        """
        self.graph(entrypoint)
        with plain_settings():
            return copy.deepcopy(dict(self.initial_state.get(entrypoint, {})))

    @property
    def compression(self) -> CompressionReport | None:
        """The compressed weights: what `compress` did to each, and the weights compressed by a library before the
        conversion. None for a program without any."""
        if self._compression is not None:
            return self._compression
        from patcomp.compression import CompressionReport, compressed_weights

        found = tuple(compressed_weights(self.module))
        return CompressionReport(found, {}) if found else None

    @property
    def composites(self) -> dict[str, int]:
        """How many calls of each composite the program makes, by composite name."""
        return self.report().counts

    def report(self) -> CompositeReport:
        """The calls of composites (the rule that recovered each, and its place in the model), overlaps of rules, and
        the warnings of the conversion, and why PyTorch's `run_decompositions` was needed, if it was.

        `print(program.report())` shows a line for each. A program of `Mode.RELEASE` has no places.
        """
        overlaps = (str(overlap) for report in self.reports for overlap in report.statistics.overlaps)
        return CompositeReport(
            composite_calls(self.module),
            tuple(dict.fromkeys(overlaps)),
            self.diagnostics,
            self.limits,
            self.left_to_pytorch,
        )

    def summary(self, verification: Verification | None = None) -> Summary:
        """The signature, the number of ops, the composites, the sizes of the weights, and the time of the conversion.

            print(program.summary(program.verify_against(model, inputs)))

        Args:
            verification: a comparison with the model, whose result is shown too.
        """
        return Summary(
            signatures={name: self.signature(name) for name in self.entrypoints},
            ops=self.module.op_count(),
            composites=self.composites,
            weights=weight_sizes(self.module),
            seconds=self.seconds,
            warnings=len(self.diagnostics),
            verification=verification,
        )

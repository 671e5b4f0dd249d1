"""A compressed program of a converted one."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.compression import (
    Alternative,
    CompressionConfig,
    CompressionReport,
    compress_module,
    other_weights,
    weights_of,
    within,
)
from patcomp.errors import ConversionWarning
from patcomp.ir.module import IRModule
from patcomp.patterns.statistics import RuleStatistics, Statistics
from patcomp.rewrites import StageReport

if TYPE_CHECKING:
    from patcomp.compression.scheme import Scheme, Stored
    from patcomp.compression.weights import Weight
    from patcomp.emit.calibration import Calibration
    from patcomp.emit.program import AIProgram

STAGE = "compress"
_SPOILED = "rounding by the examples makes an output worse; all weights are rounded to the nearest instead ({})"
_MOST = 30
"""The exponent of 10 for the error of an output that should be zero, or finite."""


def compress_program(
    program: AIProgram,
    config: str | Mapping[str, Any] | Path | CompressionConfig,
    budget: str | int | None,
    bits_per_weight: float | None,
    inputs: Any,
    entrypoint: str,
    calibrate: bool,
) -> AIProgram:
    """`AIProgram.compress`."""
    return Plan.of(
        program, CompressionConfig.of(config), budget, bits_per_weight, inputs, entrypoint, calibrate
    ).applied()


@dataclass(frozen=True)
class Plan:
    """The scheme of each weight of a program, and what example inputs say about its rounding."""

    program: AIProgram
    config: CompressionConfig
    scheme_of: Callable[[Weight], Scheme | None]
    examples: Examples | None
    rounded: Mapping[str, Stored]
    """The stored forms of weights that the examples rounded, by key."""
    seconds: float
    """How long it took to make the plan."""
    notes: Sequence[str] = ()
    """What the examples were not used for, and why."""

    @classmethod
    def of(
        cls,
        program: AIProgram,
        config: CompressionConfig,
        budget: str | int | None = None,
        bits_per_weight: float | None = None,
        inputs: Any = None,
        entrypoint: str = "main",
        calibrate: bool = True,
    ) -> Plan:
        """A plan from what `AIProgram.compress` takes."""
        if budget is not None and bits_per_weight is not None:
            raise ValueError("give a budget or bits_per_weight, not both")
        started = time.perf_counter()
        examples = None if inputs is None else Examples.of(program, inputs, entrypoint)
        scheme_of = config.scheme_of
        if budget is not None or bits_per_weight is not None:
            loss = None if examples is None else examples.lost
            schemes = within(program.module, budget, config, bits=bits_per_weight, output_loss=loss)

            def scheme_of(weight: Weight) -> Scheme | None:
                return schemes[weight.name]

        if examples is None or not calibrate:
            return cls(program, config, scheme_of, examples, {}, time.perf_counter() - started)
        found = examples.rounded(scheme_of)
        notes = [_SPOILED.format("; ".join(found.spoiled))] if found.spoiled else []
        for note in notes:
            warnings.warn(note, ConversionWarning, stacklevel=4)
        return cls(program, config, scheme_of, examples, found.stored, time.perf_counter() - started, notes)

    @property
    def names(self) -> list[str]:
        """The names of the weights that become smaller."""
        return [weight.name for weight in weights_of(self.program.module) if self.scheme_of(weight) is not None]

    def module(self, names: Collection[str]) -> IRModule:
        """The program with smaller weights of some names only."""

        def chosen(weight: Weight) -> Scheme | None:
            return self.scheme_of(weight) if weight.name in names else None

        return compress_module(self.program.module, self.config, chosen, self.rounded)[0]

    def applied(self) -> AIProgram:
        """The program with smaller weights.

        Raises:
            ValueError: no weight is compressed.
        """
        program, started = self.program, time.perf_counter() - self.seconds
        module, weights = compress_module(program.module, self.config, self.scheme_of, self.rounded)
        known = program.compression
        earlier = [] if known is None else [weight for weight in known.weights if weight.scheme]
        if not any(weight.scheme for weight in weights):
            names = [weight.name for weight in weights[:5]]
            seen = ", ".join(names) or "none that products, convolutions or lookups read"
            if earlier:
                seen += f"; {len(earlier)} are compressed already ({earlier[0].name}: {earlier[0].scheme})"
            raise ValueError(f"the config compresses no weight of this program; its weights are {seen}")
        fired = Counter(f"compress {weight.scheme}" for weight in weights if weight.scheme)
        statistics = Statistics({name: RuleStatistics(count, count, 0.0) for name, count in fired.items()})
        errors = {} if self.examples is None else self.examples.psnr(module)
        history = program.history
        if history is not None:  # it does not keep the weights that are in fewer bits now
            before = program.module.op_count()
            stage = StageReport(STAGE, before, module.op_count(), time.perf_counter() - started, statistics)
            kept = {id(blob) for blob in module.blobs}
            gone = [owner for blob in program.module.blobs if id(blob) not in kept for owner in blob.owners]
            history = history.without(gone).followed_by(stage, module)
        others = list(other_weights(module, self.config.threshold))
        report = CompressionReport([*earlier, *weights], errors, others, notes=self.notes)
        return replace(program, module=module, history=history, _compression=report)


def with_alternatives(program: AIProgram, alternatives: Sequence[Alternative]) -> AIProgram:
    """A compressed program whose report has other ways to compress it, too."""
    assert program.compression is not None
    return replace(program, _compression=replace(program.compression, alternatives=alternatives))


@dataclass(frozen=True)
class Examples:
    """Example inputs of an entry point, and the program's outputs for each."""

    program: AIProgram
    entrypoint: str
    values: Sequence[Mapping[str, Any]]
    outputs: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, program: AIProgram, inputs: Any, entrypoint: str) -> Examples:
        """Examples from one or a list of them, as `AIProgram.compress` takes them."""
        from patcomp.evaluate import call_arguments, named_arguments

        is_list = isinstance(inputs, list) and all(isinstance(each, tuple | dict) for each in inputs)
        several = inputs if is_list else [inputs]
        signature = program.signature(entrypoint)
        values = [named_arguments(signature, *call_arguments(each)) for each in several]
        return cls(program, entrypoint, values, [program.run(each, entrypoint=entrypoint) for each in values])

    def rounded(self, scheme_of: Callable[[Weight], Scheme | None]) -> Calibration:
        """The weights, rounded by what the examples show."""
        from patcomp.emit.calibration import calibrated
        from patcomp.emit.running import prepared
        from patcomp.evaluate.machine import operands_of

        graph = self.program.module.graph(self.entrypoint)

        def operands(values: Mapping[str, Any]) -> Callable[[], Sequence[Any]]:
            return lambda: operands_of(graph, *prepared(self.program, values, self.entrypoint, {}))

        return calibrated(self.program.module, self.entrypoint, scheme_of, [operands(each) for each in self.values])

    def psnr(self, module: IRModule) -> dict[str, float]:
        """How far each output of a changed program is from the program's own, in dB, on the evaluator; of several
        examples, the worst."""
        from patcomp.evaluate import compare
        from patcomp.evaluate.element_types import to_tensor

        worst: dict[str, float] = {}
        for values, outputs in zip(self.values, self.outputs, strict=True):
            made = replace(self.program, module=module).run(values, entrypoint=self.entrypoint)
            for name, exact in outputs.items():
                found = compare(name, "evaluator", to_tensor(exact), to_tensor(made[name])).psnr
                worst[name] = min(found, worst.get(name, found))
        return worst

    def lost(self, module: IRModule) -> float:
        """The squared errors of the outputs over their squared peaks."""
        return sum(10 ** min(-psnr / 10, _MOST) for psnr in self.psnr(module).values())

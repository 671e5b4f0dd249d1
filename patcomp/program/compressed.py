"""A compressed program of a converted one."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from patcomp.compression import (
    BUDGET_SCHEMES,
    PRESETS,
    Alternative,
    CompressionConfig,
    CompressionReport,
    CompressionRequest,
    compress_module,
    other_weights,
    weights_of,
    within,
)
from patcomp.devices import units_of, warnings_about
from patcomp.errors import ConversionWarning
from patcomp.ir.blobs import NO_VALUES
from patcomp.ir.module import IRModule
from patcomp.patterns.statistics import RuleStatistics, Statistics
from patcomp.rewrites import StageReport

if TYPE_CHECKING:
    from patcomp.compression.measures import Measure, OutputSignal
    from patcomp.compression.request import Given
    from patcomp.compression.scheme import Scheme, Stored
    from patcomp.compression.weights import Weight
    from patcomp.program.data import ProgramData
    from patcomp.program.examples import Examples
    from patcomp.targets import Target

STAGE = "compress"
_SPOILED = "rounding by the examples makes an output worse; all weights are rounded to the nearest instead ({})"

_Program = TypeVar("_Program", bound="ProgramData")
"""A program, whose class the compressed one has, too."""


def compress_program(
    program: _Program,
    config: Given,
    budget: str | int | None,
    bits_per_weight: float | None,
    inputs: Any,
    entrypoint: str,
    calibrate: bool,
    measure: Measure | None,
) -> _Program:
    """`AIProgram.compress`."""
    request = CompressionRequest.of(config, lowered_for(program))
    given = [each for each in (budget, request.budget, bits_per_weight, request.bits) if each is not None]
    if len(given) > 1:
        raise ValueError(f"give a budget or bits_per_weight, not both ({' and '.join(map(str, given))})")
    budget, bits = (
        (budget, bits_per_weight) if request.budget is request.bits is None else (request.budget, request.bits)
    )
    return Plan.of(program, request.config, budget, bits, inputs, entrypoint, calibrate, measure).applied()


def lowered_for(program: ProgramData) -> Target | None:
    """The target that a program was converted for, if a converter made it."""
    return None if program.history is None else program.history.options.target


@dataclass(frozen=True)
class Plan(Generic[_Program]):
    """The scheme of each weight of a program, and what example inputs say about its rounding."""

    program: _Program
    config: CompressionConfig
    scheme_of: Callable[[Weight], Scheme | None]
    examples: Examples | None
    rounded: Mapping[str, Stored]
    """The stored forms of weights that are rounded already, by key."""
    by_examples: Collection[str]
    """The keys of those that the examples rounded."""
    seconds: float
    """How long it took to make the plan."""
    notes: Sequence[str] = ()
    """What the examples were not used for, and why."""
    signal: OutputSignal | None = None
    """Measures what the outputs lose by a weight alone; None if the weights themselves are measured."""

    @classmethod
    def of(
        cls,
        program: _Program,
        config: CompressionConfig,
        budget: str | int | None = None,
        bits_per_weight: float | None = None,
        inputs: Any = None,
        entrypoint: str = "main",
        calibrate: bool = True,
        measure: Measure | None = None,
        target: Target | None = None,
    ) -> Plan[_Program]:
        """A plan from what `AIProgram.compress` takes.

        Args:
            target: the device that the program is for; by default that of its conversion.
        """
        if measure not in (None, "outputs", "weights"):
            raise ValueError(f"measure is 'outputs', 'weights' or None, got {measure!r}")
        if measure == "outputs" and inputs is None:
            raise ValueError("measure='outputs' needs inputs=, by which the program runs")
        started, target = time.perf_counter(), target or lowered_for(program)
        examples = None
        if inputs is not None:
            from patcomp.program.examples import Examples

            examples = Examples.of(program, inputs, entrypoint)
        scheme_of = config.scheme_of
        signal = None if examples is None or measure == "weights" else examples.signal(always=measure is not None)
        if budget is not None or bits_per_weight is not None:
            schemes = within(program.module, budget, config, bits=bits_per_weight, signal=signal, target=target)

            def scheme_of(weight: Weight) -> Scheme | None:
                return schemes[weight.name]

        weights = list(weights_of(program.module))
        notes = list(config.misfits(weights))
        if target is not None:
            _check_stored(target, weights, scheme_of)
        if examples is None or not calibrate:
            return cls(program, config, scheme_of, examples, {}, (), time.perf_counter() - started, notes, signal)
        found = examples.rounded(scheme_of)
        if found.spoiled:
            notes.append(_SPOILED.format("; ".join(found.spoiled)))
            warnings.warn(notes[-1], ConversionWarning, stacklevel=4)
        seconds = time.perf_counter() - started
        return cls(program, config, scheme_of, examples, found.stored, found.by_examples, seconds, notes, signal)

    @property
    def names(self) -> list[str]:
        """The names of the weights that become smaller."""
        return [weight.name for weight in weights_of(self.program.module) if self.scheme_of(weight) is not None]

    def module(self, names: Collection[str]) -> IRModule:
        """The program with smaller weights of some names only."""

        def chosen(weight: Weight) -> Scheme | None:
            return self.scheme_of(weight) if weight.name in names else None

        return compress_module(self.program.module, self.config, chosen, self.rounded)[0]

    def applied(self) -> _Program:
        """The program with smaller weights.

        Raises:
            ValueError: no weight is compressed.
        """
        program, started = self.program, time.perf_counter() - self.seconds
        module, weights = compress_module(
            program.module, self.config, self.scheme_of, self.rounded, self.by_examples, self.signal
        )
        known = program.compression
        earlier = [] if known is None else [weight for weight in known.weights if weight.scheme]
        if not any(weight.scheme for weight in weights):
            names = [weight.name for weight in weights[:5]]
            few = f"none of {self.config.threshold:,} or more elements that products, convolutions or lookups read"
            seen = ", ".join(names) or few
            if without := sorted(program.module.blobs.without_values):
                raise ValueError(NO_VALUES.format(without[0]))
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
        measure: Measure = "weights" if self.signal is None else "outputs"
        report = CompressionReport([*earlier, *weights], errors, others, notes=self.notes, measure=measure)
        known_before = set(map(str, program.diagnostics))
        said = [
            each for each in warnings_about(module, units_of(lowered_for(program))) if str(each) not in known_before
        ]
        for each in said:
            warnings.warn(str(each), ConversionWarning, stacklevel=4)
        diagnostics = (*program.diagnostics, *said)
        return replace(program, module=module, history=history, diagnostics=diagnostics, _compression=report)


def _check_stored(target: Target, weights: Sequence[Weight], scheme_of: Callable[[Weight], Scheme | None]) -> None:
    """Check that a target takes the stored forms of all weights.

    Raises:
        ValueError: it does not.
    """
    schemes = {weight.name: scheme.name for weight in weights if (scheme := scheme_of(weight)) is not None}
    if refused := [f"{name}: {scheme}" for name, scheme in schemes.items() if not target.stores(scheme)]:
        taken = ", ".join(name for name in dict.fromkeys((*PRESETS, *BUDGET_SCHEMES)) if target.stores(name))
        shown = ", ".join(refused[:3]) + ", ..." * (len(refused) > 3)
        raise ValueError(
            f"the target {target} does not take weights that are stored so: {shown}; it takes {taken}, and '4bit', "
            f"which is {target.four_bits} for it"
        )


def with_alternatives(program: _Program, alternatives: Sequence[Alternative]) -> _Program:
    """A compressed program whose report has other ways to compress it, too."""
    assert program.compression is not None
    return replace(program, _compression=replace(program.compression, alternatives=alternatives))

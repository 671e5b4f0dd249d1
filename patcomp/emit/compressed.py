"""A compressed program of a converted one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.compression import CompressionConfig, CompressionReport, compress_module, other_weights, within
from patcomp.ir.module import IRModule
from patcomp.patterns.statistics import RuleStatistics, Statistics
from patcomp.rewrites import StageReport

if TYPE_CHECKING:
    from patcomp.emit.program import AIProgram

STAGE = "compress"
_MOST = 30
"""The exponent of 10 for the error of an output that should be zero, or finite."""


def compress_program(
    program: AIProgram,
    config: str | Mapping[str, Any] | Path | CompressionConfig,
    budget: str | int | None,
    bits_per_weight: float | None,
    inputs: Any,
    entrypoint: str,
) -> AIProgram:
    """`AIProgram.compress`."""
    if budget is not None and bits_per_weight is not None:
        raise ValueError("give a budget or bits_per_weight, not both")
    chosen, started, before = CompressionConfig.of(config), time.perf_counter(), program.module.op_count()
    examples = None if inputs is None else _Examples.of(program, inputs, entrypoint)
    schemes = None
    if budget is not None or bits_per_weight is not None:
        loss = None if examples is None else examples.lost
        schemes = within(program.module, budget, chosen, bits=bits_per_weight, output_loss=loss)
    module, weights = compress_module(program.module, chosen, None if schemes is None else lambda w: schemes[w.name])
    known = program.compression
    earlier = [] if known is None else [weight for weight in known.weights if weight.scheme]
    if not any(weight.scheme for weight in weights):
        seen = ", ".join(weight.name for weight in weights[:5]) or "none that products, convolutions or lookups read"
        if earlier:
            seen += f"; {len(earlier)} are compressed already ({earlier[0].name}: {earlier[0].scheme})"
        raise ValueError(f"the config compresses no weight of this program; its weights are {seen}")
    fired: dict[str, int] = {}
    for weight in weights:
        if weight.scheme:
            fired[f"compress {weight.scheme}"] = fired.get(f"compress {weight.scheme}", 0) + 1
    statistics = Statistics({name: RuleStatistics(count, count, 0.0) for name, count in fired.items()})
    errors = {} if examples is None else examples.psnr(module)
    history = program.history
    if history is not None:  # it does not keep the weights that are in fewer bits now
        stage = StageReport(STAGE, before, module.op_count(), time.perf_counter() - started, statistics)
        kept = {id(blob) for blob in module.blobs}
        gone = [owner for blob in program.module.blobs if id(blob) not in kept for owner in blob.owners]
        history = history.without(gone).followed_by(stage, module)
    report = CompressionReport([*earlier, *weights], errors, list(other_weights(module, chosen.threshold)))
    return replace(program, module=module, history=history, _compression=report)


@dataclass(frozen=True)
class _Examples:
    """Example inputs, and the program's outputs for them."""

    program: AIProgram
    entrypoint: str
    values: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @classmethod
    def of(cls, program: AIProgram, inputs: Any, entrypoint: str) -> _Examples:
        from patcomp.evaluate import call_arguments, named_arguments

        values = named_arguments(program.signature(entrypoint), *call_arguments(inputs))
        return cls(program, entrypoint, values, program.run(values, entrypoint=entrypoint))

    def psnr(self, module: IRModule) -> dict[str, float]:
        """How far each output of a changed program is from the program's own, in dB, on the evaluator."""
        from patcomp.evaluate import compare
        from patcomp.evaluate.element_types import to_tensor

        made = replace(self.program, module=module).run(self.values, entrypoint=self.entrypoint)
        return {
            name: compare(name, "evaluator", to_tensor(exact), to_tensor(made[name])).psnr
            for name, exact in self.outputs.items()
        }

    def lost(self, module: IRModule) -> float:
        """The squared errors of the outputs over their squared peaks."""
        return sum(10 ** min(-psnr / 10, _MOST) for psnr in self.psnr(module).values())

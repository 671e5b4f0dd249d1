"""A compressed program of a converted one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.compression import CompressionConfig, CompressionReport, compress_module, psnr, within
from patcomp.emit.stages import Stages
from patcomp.patterns.statistics import RuleStatistics, Statistics
from patcomp.rewrites.pipeline import StageReport

if TYPE_CHECKING:
    from patcomp.emit.program import AIProgram

STAGE = "compress"


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
    schemes = None
    if budget is not None or bits_per_weight is not None:
        schemes = within(program.module, budget, chosen, bits=bits_per_weight)
    module, weights = compress_module(program.module, chosen, None if schemes is None else lambda w: schemes[w.name])
    if not any(weight.scheme for weight in weights):
        seen = ", ".join(weight.name for weight in weights[:5]) or "none that products, convolutions or lookups read"
        raise ValueError(f"the config compresses no weight of this program; its weights are {seen}")
    fired: dict[str, int] = {}
    for weight in weights:
        if weight.scheme:
            fired[f"compress {weight.scheme}"] = fired.get(f"compress {weight.scheme}", 0) + 1
    statistics = Statistics({name: RuleStatistics(count, count, 0.0) for name, count in fired.items()})
    reports = (
        *program.reports, StageReport(STAGE, before, module.op_count(), time.perf_counter() - started, statistics)
    )  # fmt: skip
    made = replace(
        program,
        module=module,
        reports=reports,
        stages=Stages(lambda: {**program.stages, STAGE: module.text()}, reports),
        _compression=CompressionReport(weights, {}),
    )
    if inputs is None:
        return made
    errors = _errors(program, made, inputs, entrypoint)
    return replace(made, _compression=CompressionReport(weights, errors))


def _errors(program: AIProgram, made: AIProgram, inputs: Any, entrypoint: str) -> dict[str, float]:
    """The PSNR of each output against the program before, on the evaluator."""
    from patcomp.ir.evaluate import call_arguments, named_arguments
    from patcomp.ir.evaluate.element_types import to_tensor

    values = named_arguments(program.signature(entrypoint), *call_arguments(inputs))
    exact, close = (each.run(values, entrypoint=entrypoint) for each in (program, made))
    return {
        name: psnr(to_tensor(value).float().numpy(), to_tensor(close[name]).float().numpy())
        for name, value in exact.items()
    }

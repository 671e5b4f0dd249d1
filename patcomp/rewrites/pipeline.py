"""The list of stages, and the driver that runs them, with verification, statistics and dumps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patcomp.collector import collector_paused
from patcomp.defects import mend, warnings_of
from patcomp.devices import units_of, warnings_about
from patcomp.errors import PatcompError, Problem, StageError, UnknownNameError, UnsupportedError, VerifyError
from patcomp.ir.module import IRModule
from patcomp.ir.pages import releasing
from patcomp.ir.verify import verify
from patcomp.narrowing.check import Narrowed, check_narrowing
from patcomp.patterns import RuleSet
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.lower import lower
from patcomp.rewrites.normalize import normalize
from patcomp.rewrites.optimize import optimize
from patcomp.rewrites.options import Options
from patcomp.rewrites.outline import outline
from patcomp.rewrites.recover import recover
from patcomp.rewrites.repetition import RepeatedLayers, stamp
from patcomp.rewrites.state import state
from patcomp.rewrites.target import retarget, sizes_of_data

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pass:
    """A stage: its name, and a function of the module, the stage's rules and the options."""

    name: str
    run: Callable[[IRModule, RuleSet, Options], Statistics]
    lowered: bool
    """Whether the module has only `coreai` ops afterwards, so that the runtime's rules are checked."""
    verified: bool = False
    """Whether the module is verified afterwards by default. It is before the ops are replaced by others, which may hide
    a problem (recover), and at the end."""


STAGES: tuple[Pass, ...] = (
    Pass("normalize", normalize, lowered=False),
    Pass("recover", recover, lowered=False, verified=True),
    Pass("lower", lower, lowered=True),
    Pass("target", retarget, lowered=True),
    Pass("outline", lambda module, rules, options: outline(module), lowered=True),
    Pass("state", lambda module, rules, options: state(module), lowered=True),
    Pass("optimize", optimize, lowered=True, verified=True),
)
"""The stages between import and emission, in order."""


@dataclass(frozen=True)
class StageReport:
    """The report of one stage."""

    name: str
    ops_before: int
    ops_after: int
    seconds: float
    statistics: Statistics = field(default_factory=Statistics)


@dataclass(frozen=True)
class Dumps:
    """A folder that gets `00-import.mlir`, `01-normalize.mlir`, ... and `08-emit.mlir`."""

    folder: Path

    NAMES = ("import", *(stage.name for stage in STAGES), "emit")

    def clear(self) -> None:
        """Remove the files that an earlier conversion left in the folder, and no others."""
        for name in self.NAMES:
            for path in self.folder.glob(f"[0-9][0-9]-{name}.mlir"):
                path.unlink()

    def path(self, stage: str) -> Path:
        """The file of a stage."""
        return self.folder / f"{self.NAMES.index(stage):02d}-{stage}.mlir"

    def write(self, stage: str, module: IRModule) -> Path:
        """Write the module's text; weights appear by name only."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(stage)
        path.write_text(module.text() + "\n")
        return path


@dataclass(frozen=True)
class Compilation:
    """A compiled module and the reports of the stages that made it."""

    module: IRModule
    reports: Sequence[StageReport]
    diagnostics: tuple[Problem, ...] = ()
    """The warnings of the stages."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The largest numbers of the int64 inputs that may not use all 32 bits, by graph and run-time name."""


def run_pipeline(
    module: IRModule,
    rules: RuleSet,
    options: Options,
    *,
    after_stage: Callable[[str, IRModule], object] | None = None,
    only_before: str | None = None,
    repetitions: Sequence[RepeatedLayers] = (),
) -> Compilation:
    """Run the stages on an imported module, in place.

    Args:
        module: what the frontend imported.
        rules: the rules of all stages.
        options: the user's options.
        after_stage: called with the name of each stage, `import` first, and the module after it.
        only_before: stop before the stage of this name.
        repetitions: the layers that the import left out; the module gets them after the stages.

    Raises:
        NotRepeatedError: a layer that was left out would have become something else than the others.
        UnsupportedError: ops cannot be converted, or narrowed numbers may change and the user chose errors; the message
            lists all of them.
        UnknownNameError: no op comes from a module or FX node that is to stay in float32.
        StageError: a stage produced invalid IR, or one of its rules has a defect. The stage that it names may be a
            later one than the stage that produced the IR, unless `options.verify_all`.
    """
    reports: list[StageReport] = []
    call = after_stage or (lambda name, module: None)
    call("import", module)
    narrowed = Narrowed()

    def op_count() -> int:
        return module.op_count() + sum(repetition.missing(module) for repetition in repetitions)

    with collector_paused(), releasing(blob.data for blob in module.blobs):
        count = op_count()
        for stage in STAGES:
            if stage.name == only_before:
                break
            before, started = count, time.perf_counter()
            try:
                if stage.name == "lower":
                    narrowed = _narrowed(module, options)
                statistics = stage.run(module, rules.stage(stage.name), options)
                if stage.lowered and statistics.rewrites:
                    mend(module, statistics, "lowered")
                if stage.verified or options.verify_all:
                    verify(module, runtime=stage.lowered, finished=stage is STAGES[-1])
            except (UnknownNameError, UnsupportedError):
                raise
            except PatcompError as error:
                if isinstance(error, VerifyError) and error.problems and all(each.advice for each in error.problems):
                    raise UnsupportedError("the program cannot be converted:", error.problems) from error
                raise StageError(f"stage {stage.name}: {error}", stage.name) from error
            for repetition in repetitions:
                repetition.completed(statistics)
            count = op_count()
            report = StageReport(stage.name, before, count, time.perf_counter() - started, statistics)
            reports.append(report)
            _LOG.info(
                "stage %s: %d ops became %d in %.3f s; %d rewrites by %s", stage.name, before, count, report.seconds,
                statistics.rewrites, ", ".join(sorted(statistics.fired)) or "no rule",
            )  # fmt: skip
            call(stage.name, module)
    said = [
        problem
        for each in (report.statistics for report in reports)
        for problem in (*each.failures.values(), *each.warnings)
    ]
    found = (*warnings_of(module), *sizes_of_data(module, options.target)) if only_before is None else ()
    diagnostics = (*said, *narrowed.diagnostics, *found)
    for repetition in repetitions:
        stamp(module, repetition, diagnostics)
    of_devices = warnings_about(module, units_of(options.target)) if only_before is None else ()
    return Compilation(module, tuple(reports), (*diagnostics, *of_devices), narrowed.limits)


def _narrowed(module: IRModule, options: Options) -> Narrowed:
    try:
        return check_narrowing(module, options.widths)
    except PatcompError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:  # the IR may be invalid
        raise StageError(f"the analysis of ranges fails with {type(error).__name__}: {error}", "lower") from error

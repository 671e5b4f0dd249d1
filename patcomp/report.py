"""What a conversion did, as tables for the terminal."""

from __future__ import annotations

from importlib.util import find_spec

from rich.table import Table

from patcomp.emit.program import AIProgram
from patcomp.ir.evaluate import Verification


def stage_table(program: AIProgram) -> Table:
    """The stages of a conversion: ops before and after, rules that fired, rewrites they made, seconds."""
    table = Table("stage", title="stages", title_justify="left")
    for column in ("ops in", "ops out", "rules fired", "rewrites", "seconds"):
        table.add_column(column, justify="right")
    for report in program.reports:
        statistics = report.statistics
        counts = (report.ops_before, report.ops_after, len(statistics.fired), statistics.rewrites)
        table.add_row(report.name, *map(str, counts), f"{report.seconds:.3f}")
    return table


def composites_line(program: AIProgram) -> str:
    """The composites of a program and how often it calls each, in one line."""
    found = ", ".join(f"{count} x {name}" for name, count in program.composites.items())
    return f"composites: {found or 'none'}"


def verification_table(verification: Verification) -> Table:
    """How far each output is from eager PyTorch's, on each backend."""
    passed = "passed" if verification.passed else "FAILED"
    title = f"against eager PyTorch: {passed} at tolerance {verification.tolerance:g}"
    table = Table("output", "backend", title=title, title_justify="left")
    for column in ("max abs error", "max rel error", "PSNR (dB)"):
        table.add_column(column, justify="right")
    for error in verification.errors:
        table.add_row(error.name, error.backend, f"{error.max_abs:.1e}", f"{error.max_rel:.1e}", f"{error.psnr:.0f}")
    return table


def has_toolchain() -> bool:
    """Whether `coreai-core` is installed, so that assets can be saved and run."""
    return find_spec("coreai") is not None

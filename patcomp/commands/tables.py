"""Tables for the terminal that describe a conversion."""

from __future__ import annotations

from rich.table import Table

from patcomp.emit.program import AIProgram


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

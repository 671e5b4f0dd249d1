"""Tables, for the terminal and for Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from patcomp.emit.program import AIProgram


def wide_console() -> Console:
    """A console for tables; it does not wrap lines if the output is read by a program."""
    console = Console()
    if not console.is_terminal:
        console.width = 240  # a pipe has no width to fit
    return console


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain text on standard output."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    wide_console().print(table, markup=False)


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Collection[str] = ()
) -> list[str]:
    """The lines of a Markdown table; `right_aligned` has the headings of the columns that are aligned to the right."""
    rules = ["---:" if heading in right_aligned else "---" for heading in headings]
    return [f"| {' | '.join(headings)} |", f"|{'|'.join(rules)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def escaped(text: str) -> str:
    """Text without the characters that end a cell, start emphasis or make a link in Markdown."""
    return re.sub(r"\]([\[(])", r"]\\\1", text.replace("|", "\\|").replace("*", "\\*"))


def composites_line(program: AIProgram) -> str:
    """The composites of a program and how often it calls each, in one line."""
    found = ", ".join(f"{count} x {name}" for name, count in program.composites.items())
    return f"composites: {found or 'none'}"

"""Tables, for the terminal and for Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group
from rich.protocol import rich_cast
from rich.segment import Segment, Segments
from rich.table import Column, Table

from patcomp.commands.common import coloured, print_lines
from patcomp.errors import printable

if TYPE_CHECKING:
    from patcomp.program.program import AIProgram


LEFT_OUT = ("relative to", "max rel", "median rel", "PSNR (dB)", "read by", "mean")
"""The columns that a narrow terminal does not show, the least important first; files and `--json` have all."""


_READABLE = 16
"""The fewest characters in a line of a folded column; if there are fewer, other columns are folded, too."""

_ANY = 10_000
"""More columns than any table needs."""


def show(shown: Any, console: Console | None = None) -> None:
    """Print tables and lines; tables fit the terminal.

    Args:
        shown: a table, lines, a group of both, or an object that rich makes one of.
        console: where to; by default standard output.
    """
    console = console or Console()
    if not console.is_terminal:
        console.width = _ANY  # a pipe or a file has no width to fit
    for part in shown.renderables if isinstance(shown := rich_cast(shown), Group) else [shown]:
        if isinstance(part, Table):
            segments = console.render(_fitted(part, console), console.options.update(markup=False))
            seen = (part for each in segments for part in _coloured(each, console))
            console.print(Segments(seen), end="")
        elif isinstance(part, str):
            print_lines(part, console)
        else:
            console.print(part, markup=False, highlight=False, soft_wrap=True)


def _coloured(segment: Segment, console: Console) -> Iterable[Segment]:
    """A piece of a line, with the colours of its words."""
    if segment.control or not console.is_terminal:
        return [Segment(printable(segment.text), segment.style, segment.control)]
    text = coloured(segment.text)
    text.stylize_before(segment.style or "")
    return text.render(console, end="")


def _fitted(table: Table, console: Console) -> Table:
    """A table that is not wider than the terminal: with lighter lines, with fewer columns, or with shorter names or
    folded texts in its widest column."""
    if _width(table, console) <= console.width:
        return table
    columns = list(table.columns)
    for heading in (None, *LEFT_OUT):
        columns = [column for column in columns if column.header != heading]
        if _width(lighter := _lighter(table, columns), console) <= console.width:
            return lighter
    widths = [max(cell_len(str(cell)) for cell in (column.header, *column.cells)) for column in columns]
    widest = max(range(len(columns)), key=widths.__getitem__)
    left = console.width - (_width(lighter, console) - widths[widest])
    if left < _READABLE:
        return lighter  # rich folds several columns
    lighter = _lighter(table, columns, {widest: left})
    for index, column in enumerate(lighter.columns):
        column.no_wrap = index != widest
    return lighter


def _lighter(table: Table, columns: Sequence[Column], limits: Mapping[int, int] = MappingProxyType({})) -> Table:
    """Some columns of a table, with no lines but that below the headings, and names not longer than the limits."""
    made = Table(title=table.title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False,
                 collapse_padding=True)  # fmt: skip
    for column in columns:
        made.add_column(column.header, justify=column.justify, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*(_shortened(str(cell), limits.get(index)) for index, cell in enumerate(row)))
    return made


def _shortened(cell: str, most: int | None) -> str:
    """A name without its middle; a text stays whole, because it can be folded."""
    if most is None or len(cell) <= most or " " in cell:
        return cell
    behind = (most - 1) // 2
    return f"{cell[: most - 1 - behind]}…{cell[-behind:]}"


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=_ANY)).maximum


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of plain text on standard output."""
    rows = list(rows)
    numbers = [all(re.fullmatch(r"[\d,.]+%?|", cell) for cell in column) for column in zip(*rows, strict=True)]
    table = Table()
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if numbers and numbers[index] else "left")
    for row in rows:
        table.add_row(*row)
    show(table)


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

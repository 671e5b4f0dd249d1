"""Tables of rich as plain text, for `str`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from patcomp.errors import printable

if TYPE_CHECKING:
    from rich.table import Table


def table_of_numbers(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of texts; all but the first column are numbers."""
    from rich.table import Table

    first, *others = headings
    table = Table(first, title=title, title_justify="left")
    for column in others:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def text_of(*tables: Table) -> str:
    """Tables as text without colours, in ASCII; lines are as long as the tables need."""
    from rich.box import ASCII2
    from rich.console import Console

    stream = io.StringIO()
    console = Console(file=stream, width=240, color_system=None)
    for table in tables:
        table.box = ASCII2
        console.print(table, markup=False)
    return printable("\n".join(line.rstrip() for line in stream.getvalue().split("\n")).rstrip("\n"))

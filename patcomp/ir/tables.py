"""Tables of rich as plain text, for `str`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from patcomp.errors import printable

if TYPE_CHECKING:
    from rich.table import Table


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

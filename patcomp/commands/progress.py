"""Progress of slow steps, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from patcomp.commands.common import is_spinning, spinning

_PATIENCE = 1.0
"""Seconds after which a step is shown."""


@contextmanager
def working(what: str, wanted: bool = True, *, counts: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show what is done if it takes more than a second, and standard error is a terminal.

    The value shows a bar: it is called with the bytes that are done, and with all bytes; or, if `counts`, with numbers
    of things.
    """
    console = Console(stderr=True)
    if not (wanted and console.is_terminal) or is_spinning():  # a step inside another one is not shown
        yield lambda done, size: None
        return
    status = console.status(what)

    def advance(done: int, size: int) -> None:
        from patcomp.program.units import size_text

        line = Table.grid(padding=(0, 1))
        shown = str if counts else size_text
        line.add_row(what, ProgressBar(size, done, width=30), f"{shown(done)} of {shown(size)}")
        status.update(line)

    timer = Timer(_PATIENCE, status.start)
    timer.start()
    try:
        with spinning(console):
            yield advance
    finally:
        timer.cancel()
        timer.join()
        status.stop()

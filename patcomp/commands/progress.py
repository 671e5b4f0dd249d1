"""Progress of slow steps, on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console

PATIENCE = 1.0
"""Seconds after which a step is shown."""


@contextmanager
def working(what: str, wanted: bool = True) -> Iterator[None]:
    """Show what is done if it takes more than a second, and standard error is a terminal."""
    console = Console(stderr=True)
    if not (wanted and console.is_terminal):
        yield
        return
    status = console.status(what)
    timer = Timer(PATIENCE, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()

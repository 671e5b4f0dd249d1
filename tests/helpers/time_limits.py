"""A limit for what may hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TimeIsUp(Exception):  # noqa: N818
    """A limit was reached."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises `TimeIsUp` inside the block after that many seconds."""

    def stop(*_: Any) -> None:
        raise TimeIsUp(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

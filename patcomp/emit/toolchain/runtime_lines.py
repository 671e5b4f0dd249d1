"""Separate the Core AI runtime's lines on standard error from a command's own output.

The runtime writes to file descriptor 2, past `sys.stderr`. While a command runs, Python has a descriptor of its own, so
that only lines of native code are kept apart, and other threads write on.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("patcomp.runtime")
_IS_USUAL = "ODIE "
"""How the lines begin that the runtime writes at each call."""

_one_at_a_time = threading.RLock()
_is_apart = False
"""Whether Python writes to a descriptor of its own."""


@contextmanager
def own_standard_error() -> Iterator[None]:
    """Give Python's `sys.stderr` a descriptor of its own, if it shares descriptor 2 with native code."""
    global _is_apart
    given = sys.stderr
    try:
        is_shared = given.fileno() == 2
    except (OSError, ValueError, AttributeError):  # it was replaced, by a notebook or a test for example
        is_shared = False
    if not is_shared:
        yield
        return
    with os.fdopen(os.dup(2), "w", buffering=1, encoding=given.encoding, errors=given.errors) as own:
        sys.stderr, _is_apart = own, True
        try:
            yield
        finally:
            sys.stderr, _is_apart = given, False


@contextmanager
def kept_apart() -> Iterator[None]:
    """Around a call of the runtime in a command: its usual lines are logged at the level debug, and other lines, or all
    lines of a call that fails, as errors."""
    if not _is_apart:
        yield
        return
    with _one_at_a_time, tempfile.TemporaryFile() as lines:
        before = os.dup(2)
        os.dup2(lines.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        finally:
            os.dup2(before, 2)
            os.close(before)
            lines.seek(0)
            for line in lines.read().decode(errors="replace").splitlines():
                usual = not failed and line.startswith(_IS_USUAL)
                _LOGGER.log(logging.DEBUG if usual else logging.ERROR, "%s", line)

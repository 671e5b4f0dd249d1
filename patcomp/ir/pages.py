"""Weights in files that are mapped into memory: once they are read, their pages can go, and come back when needed."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_Weight = memoryview | bytes
"""The bytes of a weight, one by one."""

_DROP, _RECLAIM = 4, 21
"""MADV_DONTNEED and MADV_PAGEOUT of Linux. The first leaves what was written to a shared mapping to the system; a
private one would lose it, so its pages are reclaimed, which keeps those that were written to."""


_PAUSE = 0.1
"""Seconds, in which native code reads some hundred megabytes."""


_SMALL = 2**20
"""Weights of fewer bytes are not worth a look at what is mapped where."""


_WORTH = 64 * 2**20
"""Weights of fewer bytes may stay in memory."""


def release(weights: Iterable[_Weight]) -> None:
    """Let go of the pages of weights that are mapped from files. On other systems than Linux nothing happens.

    Args:
        weights: their bytes; those in other memory are left alone.
    """
    weights = list(weights)
    if not sys.platform.startswith("linux") or sum(memoryview(weight).nbytes for weight in weights) < _SMALL:
        return
    starts, ends, is_shared = _mapped_files()
    page = mmap.PAGESIZE
    for weight in weights:
        data = np.frombuffer(weight, np.uint8)
        first = data.__array_interface__["data"][0]
        last = first + data.nbytes
        found = bisect_right(starts, first) - 1
        if found < 0 or last > ends[found]:
            continue
        first, last = -(-first // page) * page, last // page * page  # what shares a page with others stays
        if first < last:
            _libc().madvise(first, last - first, _DROP if is_shared[found] else _RECLAIM)


@contextmanager
def releasing(weights: Iterable[_Weight]) -> Iterator[None]:
    """Let go of the pages of weights again and again, while native code reads them one after another."""
    kept, done = list(weights), threading.Event()
    if sum(map(len, kept)) < _WORTH:
        yield
        return

    def work() -> None:
        while not done.wait(_PAUSE):
            release(kept)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        release(kept)


def _mapped_files() -> tuple[list[int], list[int], list[bool]]:
    """The first and last addresses of the mappings of files, in order, and whether each is shared."""
    starts, ends, is_shared = [], [], []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, _, _, inode = line.split(maxsplit=5)[:5]
        if inode != "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            starts.append(start)
            ends.append(end)
            is_shared.append(permissions[3] == "s")
    return starts, ends, is_shared


@cache
def _libc() -> Any:
    made = ctypes.CDLL(None, use_errno=True)
    made.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return made

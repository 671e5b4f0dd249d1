"""Pages of weights in files go when they are released, and nothing that was written is lost."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patcomp.ir import pages
from patcomp.ir.pages import release, releasing

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says what is in memory")
SIZE = 8 * 2**20


def resident(path: Path) -> int:
    """The bytes of a file that are in the memory of this process."""
    total, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            is_ours = line.rstrip().endswith(str(path))
        elif first == "Rss:" and is_ours:
            total += 1024 * int(line.split()[1])
    return total


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_bytes(np.random.default_rng(0).bytes(SIZE))
    return tmp_path / "weights"


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_pages_that_were_read_go(path: Path, mode: Any) -> None:
    weights = np.memmap(path, np.uint8, mode)
    total = weights.sum()
    assert resident(path) >= SIZE
    release([memoryview(weights)])
    assert resident(path) < SIZE // 8
    assert weights.sum() == total


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_what_was_written_stays(path: Path, mode: Any) -> None:
    weights = np.memmap(path, np.uint8, mode)
    weights[:] = 7
    release([memoryview(weights)])
    assert (weights == 7).all()


def test_a_part_of_a_file(path: Path) -> None:
    weights = np.memmap(path, np.uint8, "r")
    weights.sum()
    release([memoryview(weights[5 : SIZE // 2])])
    assert SIZE // 4 < resident(path) < SIZE - SIZE // 4


def test_bytes_in_other_memory_stay() -> None:
    copied = bytes(2**21)
    release([copied])
    assert copied == bytes(2**21)


def test_other_memory_stays() -> None:
    weights = np.arange(SIZE, dtype=np.uint8)
    release([memoryview(weights), memoryview(b"")])
    assert np.array_equal(weights, np.arange(SIZE, dtype=np.uint8))


def test_pages_go_while_others_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_WORTH", 0)
    weights = np.memmap(path, np.uint8, "r")
    with releasing([memoryview(weights)]):
        weights.sum()
        until = time.monotonic() + 60
        while resident(path) >= SIZE and time.monotonic() < until:
            time.sleep(0.01)
        assert resident(path) < SIZE
    assert resident(path) < SIZE // 8

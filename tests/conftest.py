"""Fixtures that many tests use."""

from collections.abc import Iterator

import pytest
from native import Native


@pytest.fixture(scope="session")
def native() -> Iterator[Native]:
    """The real runtime in a child process, one for each test worker; skips the test without `coreai-core`."""
    pytest.importorskip("coreai")
    runner = Native()
    yield runner
    runner.close()

"""`@pytest.mark.sampled(4)`: CI runs every fourth case of a test, the first one too; `-m slow` runs the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None or item.get_closest_marker("slow"):
            continue
        name = item.nodeid.partition("[")[0]
        if seen[name] % mark.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[name] += 1

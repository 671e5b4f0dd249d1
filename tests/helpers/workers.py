"""Which tests run in the same worker: those with the same `xdist_group`, which share what they make."""

from collections.abc import Iterable

import pytest


def in_one_worker(names: Iterable[str]) -> list[object]:
    """Parameters of which the tests of one name, in all files, run in one worker, which makes what they share once."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of a group one after the other, and all groups first.

    A worker runs a part of the list in order, and takes over the end of another worker's part when it is done
    (`--dist worksteal`; `loadgroup` would send the workers thousands of messages, one for each test).
    """
    groups: dict[str, int] = {}

    def position(item: pytest.Item) -> float:
        marker = item.get_closest_marker("xdist_group")
        return float("inf") if marker is None else groups.setdefault(marker.args[0], len(groups))

    items.sort(key=position)

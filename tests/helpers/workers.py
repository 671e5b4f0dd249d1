"""Which tests run in the same worker."""

from collections.abc import Iterable

import pytest


def in_one_worker(names: Iterable[str]) -> list[object]:
    """Parameters of which the tests of one name, in all files, run in one worker, which makes what they share once."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]

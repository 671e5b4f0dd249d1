"""Tests that run as users run: without `PATCOMP_STRICT` and `PATCOMP_VERIFY`, and with a cache on disk.

A module whose tests run so has the line `pytestmark = AS_USERS_RUN`. What its tests keep (`functools.cache`) must not
be shared with modules that have stricter settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest

from patcomp.frontend_torch.decomposition import shared_graphs

AS_USERS_RUN = [
    pytest.mark.usefixtures("users_settings"),
    pytest.mark.filterwarnings("error:rule .* failed:patcomp.ConversionWarning"),
]
"""The marks of a module. A rule that fails is skipped with a warning, which fails the test."""


@contextmanager
def users_environment(cache: str, graphs: Any) -> Iterator[None]:
    """The environment of users inside, and the one before afterwards.

    Args:
        cache: the folder of the cache.
        graphs: the function that keeps graphs, instead of that of this process, which has another cache or none.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PATCOMP_STRICT", raising=False)
        patch.delenv("PATCOMP_VERIFY", raising=False)
        patch.setenv("PATCOMP_CACHE", cache)
        patch.setattr(shared_graphs, "_shared_graphs", graphs)
        yield


@pytest.fixture(scope="session")
def users_cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """The cache of all modules that run as users run in this process."""
    graphs = lru_cache(maxsize=16)(shared_graphs._shared_graphs.__wrapped__)
    return str(tmp_path_factory.mktemp("users_cache")), graphs


@pytest.fixture(scope="module")
def users_settings(users_cache: tuple[str, Any]) -> Iterator[None]:
    """The environment of users until the end of the module, before its other fixtures make anything."""
    with users_environment(*users_cache):
        yield

"""Tests that run as users run: without `PATCOMP_STRICT` and `PATCOMP_VERIFY`.

A module whose tests run so has the line `pytestmark = AS_USERS_RUN`. What its tests keep (`functools.cache`) must not
be shared with modules that have stricter settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

AS_USERS_RUN = [
    pytest.mark.usefixtures("users_settings"),
    pytest.mark.filterwarnings("error:rule .* failed:patcomp.ConversionWarning"),
]
"""The marks of a module. A rule that fails is skipped with a warning, which fails the test."""


@contextmanager
def users_environment() -> Iterator[None]:
    """The environment of users inside, and the one before afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PATCOMP_STRICT", raising=False)
        patch.delenv("PATCOMP_VERIFY", raising=False)
        yield


@pytest.fixture(scope="module")
def users_settings() -> Iterator[None]:
    """The environment of users until the end of the module, before its other fixtures make anything."""
    with users_environment():
        yield

"""One Chromium for all tests of pages: the fixture `browser`, a plugin of pytest."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser of playwright; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tested with playwright")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("pages are tested in Chromium, which is not installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=_OPTIONS)
        yield opened
        opened.close()

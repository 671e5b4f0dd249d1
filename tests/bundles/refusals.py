"""Folders that become no bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patcomp.bundles import BundleError, convert_bundle


def assert_refused(
    source: Path, change: Callable[[Path], object], options: Mapping[str, Any], message: str, place: Path
) -> None:
    """A changed copy of a folder is refused in one line that has a message, and nothing is left in an empty place."""
    folder = place / "folder"
    shutil.copytree(source, folder)
    change(folder)
    with pytest.raises(BundleError) as caught:
        convert_bundle(folder, out=place / "out", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in place.iterdir() if path != folder] == []

"""JSON files of checkpoints and bundles, which hold an object each."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

from patcomp.bundle_folders.errors import BundleError
from patcomp.errors import reason_of


def object_in(file: Path) -> dict[str, Any]:
    """The content of a file.

    Raises:
        FileNotFoundError: there is no such file.
        BundleError: it holds something else than an object.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{str(file)!r} is not JSON: {reason_of(error)}") from None
    if not isinstance(found, dict):
        raise BundleError(f"{str(file)!r} must hold a JSON object, and holds a {type(found).__name__}")
    return found


def metadata_in(folder: Path) -> dict[str, Any]:
    """The content of a bundle's `metadata.json`.

    Raises:
        BundleError: the folder is no bundle.
    """
    if not folder.is_dir():
        what = f"{str(folder)!r} is a file" if folder.exists() else f"there is no folder {str(folder)!r}"
        raise BundleError(f"{what}; give the folder of a bundle")
    file = folder / "metadata.json"
    if not file.is_file():
        raise BundleError(f"{str(folder)!r} is not a bundle: there is no metadata.json")
    return object_in(file)


def compilation() -> dict[str, Any]:
    """The entry `compilation` of `metadata.json`: now, or `SOURCE_DATE_EPOCH`, and no device."""
    seconds, utc = os.environ.get("SOURCE_DATE_EPOCH"), datetime.UTC
    date = datetime.datetime.fromtimestamp(int(seconds), utc) if seconds else datetime.datetime.now(utc)
    return {"date": date.isoformat(), "targets": []}

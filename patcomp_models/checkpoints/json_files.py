"""`metadata.json` of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from patcomp_models.checkpoints.untrusted import check_folder, inside, object_in
from patcomp_models.errors import BundleError


def metadata_in(folder: Path) -> dict[str, Any]:
    """The content of a bundle's `metadata.json`; the folder is checked, because it may be a stranger's.

    Raises:
        BundleError: the folder is no bundle, or has what leads out of it.
    """
    if not folder.is_dir():
        what = f"{str(folder)!r} is a file" if folder.exists() else f"there is no folder {str(folder)!r}"
        raise BundleError(f"{what}; give the folder of a bundle")
    file = folder / "metadata.json"
    if not file.is_file():
        raise BundleError(f"{str(folder)!r} is not a bundle: there is no metadata.json")
    check_folder(folder)
    found = object_in(file)
    assets = found.get("assets")
    for role, name in assets.items() if isinstance(assets, dict) else ():
        if isinstance(name, str):
            inside(folder, name, f"assets.{role} of metadata.json")
    return found

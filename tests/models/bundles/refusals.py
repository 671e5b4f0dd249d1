"""Folders that become no bundle, and bundles that a host would refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundles import BundleError, check_bundle, convert_bundle


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


Change = Callable[[Path], object]


def assert_departs(bundle: Path, place: Path, change: Change, message: str) -> None:
    """The check of a changed copy of a bundle has a message."""
    shutil.copytree(bundle, place / "bundle")
    change(place / "bundle")
    assert message in "\n".join(map(str, check_bundle(place / "bundle")))


def edited(change: Callable[[dict[str, Any]], object], name: str = "metadata.json") -> Change:
    """A change of a JSON file."""

    def edit(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return edit


def config(**values: Any) -> Change:
    """Other values in the block `config` of a bundle's metadata."""
    return edited(lambda metadata: metadata["config"].update(values))


def block(**values: Any) -> Change:
    """A change of the block `diffusion`; None removes a value."""

    def change(metadata: dict[str, Any]) -> None:
        found = {**metadata["diffusion"], **values}
        metadata["diffusion"] = {name: value for name, value in found.items() if value is not None}

    return edited(change)


def assets(**files: str | None) -> Change:
    """A change of the assets; None removes one."""

    def change(metadata: dict[str, Any]) -> None:
        found = {**metadata["assets"], **files}
        metadata["assets"] = {role: file for role, file in found.items() if file is not None}

    return edited(change)


def of_class(name: str) -> Change:
    """The folder of a checkpoint names another class."""
    return edited(lambda content: content.update(architectures=[name]), "config.json")


def without(*names: str) -> Change:
    """Files or folders are missing."""

    def remove(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def exchanged(first: str, second: str) -> Change:
    """Two files, or folders, have each other's names."""

    def exchange(bundle: Path) -> None:
        (bundle / first).rename(bundle / "other")
        (bundle / second).rename(bundle / first)
        (bundle / "other").rename(bundle / second)

    return exchange


def unchanged(folder: Path) -> None:
    """The folder stays as it is."""

"""Entry points: what installed packages add to patcomp, and what patcomp's own package declares in the same way."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, distribution, distributions
from pathlib import Path
from typing import Any

OWN = "patcomp"
"""The name of patcomp's own package."""
_GROUPS = f"{OWN}."
"""What the names of the groups begin with, in which a package says what it adds."""


@dataclass(frozen=True, order=True)
class Point:
    """An entry point of an installed package."""

    package: str
    name: str
    value: str
    version: str
    """The version of the package."""
    group: str

    def __str__(self) -> str:
        return f"the entry point {self.name} = {self.value} of {self.package}"

    @property
    def module(self) -> str:
        """The module in which the object is."""
        return EntryPoint(self.name, self.value, self.group).module

    def load(self) -> Any:
        """The object that the entry point names.

        Raises:
            Exception: whatever the code of the package raises.
        """
        return EntryPoint(self.name, self.value, self.group).load()


def entry_points_of(group: str) -> tuple[Point, ...]:
    """The entry points of a group of patcomp's, ordered by package and name."""
    points = _entry_points_of(tuple((folder, _changed(folder)) for folder in sys.path))
    return tuple(point for point in points if point.group == group)


@lru_cache(maxsize=1)  # to read the metadata of all packages takes as long as to convert 20 nodes
def _entry_points_of(folders: tuple[tuple[str, int], ...]) -> tuple[Point, ...]:
    """The entry points of all groups of patcomp's while the import path and its folders stay as they are."""
    # `entry_points` parses the file of every package, although almost none names a group of patcomp's
    packages = {found.name for found in distributions() if f"[{_GROUPS}" in (found.read_text("entry_points.txt") or "")}
    found = [
        Point(package, point.name, point.value, installed.version, point.group)
        for package in packages
        for installed in [distribution(package)]
        for point in installed.entry_points
        if point.group.startswith(_GROUPS)
    ]
    own = _of_source_tree()
    return tuple(sorted(found if own is None else [*own, *(point for point in found if point.package != OWN)]))


def _of_source_tree() -> list[Point] | None:
    """patcomp's own entry points where it runs from its source tree; None if it is installed.

    The metadata of an editable install are as old as the install, and a tree on `PYTHONPATH` has none.
    """
    file = Path(__file__).parents[1] / "pyproject.toml"
    if not file.is_file():
        return None
    project = tomllib.loads(file.read_text("utf-8")).get("project", {})
    if project.get("name") != OWN:
        return None
    return [
        Point(OWN, name, value, project["version"], group)
        for group, points in project["entry-points"].items()
        for name, value in points.items()
    ]


def _changed(folder: str) -> int:
    """When something was installed in a folder of the import path, in nanoseconds; 0 if there is no such folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0

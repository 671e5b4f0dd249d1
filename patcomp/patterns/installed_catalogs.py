"""Catalogs of installed packages, which name them in their metadata. patcomp's own package does so, too."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, distributions, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from patcomp.errors import RuleError
from patcomp.patterns.catalog import RuleSet
from patcomp.patterns.deferred import INDEX, Decompositions, check_index, read_index
from patcomp.patterns.user_catalogs import Catalog, rules_of

GROUP = "patcomp.catalogs"
"""The entry point group of packaging metadata in which a package names its catalogs."""

OWN = "patcomp"
"""The name of patcomp's own package."""


def installed_catalogs() -> list[RuleSet | Decompositions]:
    """The catalogs that other installed packages declare, ordered by package and entry point.

    Raises:
        RuleError: a catalog cannot be loaded, or two rules have one name; the message names the package.
    """
    return [_catalog(point) for point in _entry_points() if point.package != OWN]


def own_catalogs() -> list[Decompositions]:
    """The catalogs that patcomp's own package declares.

    Raises:
        RuleError: nothing declares them, because patcomp is there without the metadata of its installation.
    """
    found = [
        _indexed(point) or Decompositions(partial(_loaded, point)) for point in _entry_points() if point.package == OWN
    ]
    if not found:
        raise RuleError(
            "patcomp's own catalogs are not found: the files of patcomp are there without the metadata of their "
            "installation (patcomp-*.dist-info); install patcomp with pip"
        )
    return found


def versions_of(catalogs: Iterable[Catalog], installed: bool) -> dict[str, str]:
    """The versions of catalogs by name: `__version__`, or that of the installed package; empty if there is none.

    Args:
        catalogs: modules, packages and sets of rules; sets have no name.
        installed: whether to add the catalogs of installed packages.
    """
    found: dict[str, str] = {}
    for catalog in catalogs:
        if isinstance(catalog, ModuleType):
            name = catalog.__name__.partition(".")[0]
            found[name] = str(getattr(catalog, "__version__", "")) or _installed_version(name)
    points = _entry_points() if installed else ()
    return found | {point.package: point.version for point in points if point.package != OWN}


@dataclass(frozen=True, order=True)
class _Point:
    """An entry point of an installed catalog."""

    package: str
    name: str
    value: str
    version: str

    @property
    def entry(self) -> EntryPoint:
        return EntryPoint(self.name, self.value, GROUP)


def _entry_points() -> tuple[_Point, ...]:
    """The entry points of the installed catalogs, ordered by package and name."""
    return _entry_points_of(tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=1)  # to read the metadata of all packages takes as long as to convert 20 nodes
def _entry_points_of(folders: tuple[tuple[str, int], ...]) -> tuple[_Point, ...]:
    """The entry points of the installed catalogs while the import path and its folders stay as they are."""
    # `entry_points` parses the file of every package, although almost none names a catalog
    packages = {found.name for found in distributions() if GROUP in (found.read_text("entry_points.txt") or "")}
    found = [
        _Point(package, point.name, point.value, found.version)
        for package in packages
        for found in [distribution(package)]
        for point in found.entry_points
        if point.group == GROUP
    ]
    own = _of_source_tree()
    return tuple(sorted(found if own is None else [*own, *(point for point in found if point.package != OWN)]))


def _of_source_tree() -> list[_Point] | None:
    """patcomp's own entry points where it runs from its source tree; None if it is installed.

    The metadata of an editable install are as old as the install, and a tree on `PYTHONPATH` has none.
    """
    file = Path(__file__).parents[2] / "pyproject.toml"
    if not file.is_file():
        return None
    project = tomllib.loads(file.read_text("utf-8")).get("project", {})
    if project.get("name") != OWN:
        return None
    points = project["entry-points"][GROUP].items()
    return [_Point(OWN, name, value, project["version"]) for name, value in points]


def _changed(folder: str) -> int:
    """When something was installed in a folder of the import path, in nanoseconds; 0 if there is no such folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def _indexed(point: _Point) -> Decompositions | None:
    """The catalog of an entry point, if it is a package with an index of its decompositions, or None."""
    try:
        spec = find_spec(point.entry.module)
    except (ImportError, ValueError):
        return None  # to load it says why
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(folder) / INDEX).is_file():
            with _loading(point):
                index = read_index(file.read_text("utf-8"))
            return Decompositions(partial(_loaded, point, index), index)
    return None


def _catalog(point: _Point) -> RuleSet | Decompositions:
    """The rules of an entry point; not loaded yet if its package has an index of its decompositions."""
    return _indexed(point) or _loaded(point)


def _loaded(point: _Point, index: set[tuple[str, bool]] | None = None) -> RuleSet:
    with _loading(point):
        rules = rules_of(point.entry.load())
        return rules if index is None else check_index(rules, index)


@contextmanager
def _loading(point: _Point) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the package's own code may raise any exception
        advice = "uninstall the package, or leave installed catalogs out with TorchConverter(installed_catalogs=False)"
        raise RuleError(
            f"the catalog {point.name!r} ({point.value}) of the installed package {point.package} cannot be loaded: "
            f"{type(error).__name__}: {error}{'' if point.package == OWN else f'; {advice}'}"
        ) from error

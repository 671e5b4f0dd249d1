"""Catalogs of installed packages, which name them in their metadata. patcomp's own package does so, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from patcomp.entry_points import OWN, Point, entry_points_of
from patcomp.errors import RuleError
from patcomp.patterns.catalog import RuleSet
from patcomp.patterns.deferred import INDEX, Decompositions, check_index, read_index
from patcomp.patterns.user_catalogs import Catalog, rules_of, targets_of
from patcomp.targets import TARGETS, Target, chosen_target

GROUP = "patcomp.catalogs"
"""The entry point group of packaging metadata in which a package names its catalogs."""


def installed_catalogs() -> list[RuleSet | Decompositions]:
    """The catalogs that other installed packages declare, ordered by package and entry point.

    Raises:
        RuleError: a catalog cannot be loaded, or two rules have one name; the message names the package.
    """
    return [_catalog(point) for point in entry_points_of(GROUP) if point.package != OWN]


def target_named(
    target: str | Target | None, catalogs: Iterable[Catalog] = (), installed: bool = True
) -> Target | None:
    """The target that `target=` names: one of patcomp's, of catalogs, or of an installed catalog.

    Args:
        target: a name or a target.
        catalogs: modules, packages and sets of rules.
        installed: whether those of installed packages count; they are loaded only if no other target has the name.

    Raises:
        TypeError: the argument is neither a name nor a target.
        ValueError: no target has the name; the message lists all.
        RuleError: two targets of catalogs have one name, or an installed catalog cannot be loaded.
    """
    known = {**TARGETS, **targets_of(catalogs)}
    if installed and isinstance(target, str) and target not in known:
        for point in entry_points_of(GROUP):
            if point.package != OWN:
                with _loading(point):
                    known = {**targets_of([point.load()]), **known}
    return chosen_target(target, known)


def own_catalogs() -> list[Decompositions]:
    """The catalogs that patcomp's own package declares.

    Raises:
        RuleError: nothing declares them, because patcomp is there without the metadata of its installation.
    """
    found = [
        _indexed(point) or Decompositions(partial(_loaded, point))
        for point in entry_points_of(GROUP)
        if point.package == OWN
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
    points = entry_points_of(GROUP) if installed else ()
    return found | {point.package: point.version for point in points if point.package != OWN}


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def _indexed(point: Point) -> Decompositions | None:
    """The catalog of an entry point, if it is a package with an index of its decompositions, or None."""
    try:
        spec = find_spec(point.module)
    except (ImportError, ValueError):
        return None  # to load it says why
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(folder) / INDEX).is_file():
            with _loading(point):
                index = read_index(file.read_text("utf-8"))
            return Decompositions(partial(_loaded, point, index), index)
    return None


def _catalog(point: Point) -> RuleSet | Decompositions:
    """The rules of an entry point; not loaded yet if its package has an index of its decompositions."""
    return _indexed(point) or _loaded(point)


def _loaded(point: Point, index: set[tuple[str, bool]] | None = None) -> RuleSet:
    with _loading(point):
        rules = rules_of(point.load())
        return rules if index is None else check_index(rules, index)


@contextmanager
def _loading(point: Point) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the package's own code may raise any exception
        advice = "uninstall the package, or leave installed catalogs out with TorchConverter(installed_catalogs=False)"
        raise RuleError(
            f"the catalog {point.name!r} ({point.value}) of the installed package {point.package} cannot be loaded: "
            f"{type(error).__name__}: {error}{'' if point.package == OWN else f'; {advice}'}"
        ) from error

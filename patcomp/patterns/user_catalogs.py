"""Catalogs of users: modules, packages and sets of rules, and the catalogs of installed packages. Their rules go in
front of patcomp's own rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, distributions, version
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from patcomp.errors import RuleError
from patcomp.patterns.catalog import RuleSet, collect
from patcomp.patterns.rule import Rule
from patcomp.targets import TARGETS, Target

GROUP = "patcomp.catalogs"
"""The entry point group of packaging metadata in which a package names its catalogs."""

Catalog = ModuleType | RuleSet
"""A module of rules, a package with all its modules, or a set of rules."""


def rules_of(catalog: Catalog) -> RuleSet:
    """The rules of a catalog.

    Raises:
        TypeError: the argument is no catalog.
        RuleError: two of its rules have one name, or a target op does not exist.
    """
    if isinstance(catalog, RuleSet):
        catalog.check()
        return catalog
    if not isinstance(catalog, ModuleType):
        raise TypeError(f"a catalog is a module, a package or a RuleSet, not {catalog!r}")
    return collect(*modules_of(catalog))


def modules_of(catalog: ModuleType) -> list[ModuleType]:
    """A module, or a package with all its modules."""
    inside = walk_packages(getattr(catalog, "__path__", ()), f"{catalog.__name__}.")
    return [catalog, *(import_module(name) for name in sorted(module.name for module in inside))]


def targets_of(catalogs: Iterable[Catalog]) -> dict[str, Target]:
    """The targets declared in the modules of catalogs, by name. A `Target` with the name of a target of patcomp does
    not count.

    Raises:
        RuleError: two of them have one name.
    """
    found: dict[str, Target] = {}
    for module in (each for catalog in catalogs if isinstance(catalog, ModuleType) for each in modules_of(catalog)):
        for value in vars(module).values():
            if not isinstance(value, Target) or value.name in TARGETS:  # a variant of one of patcomp's has its name
                continue
            if found.setdefault(value.name, value) != value:
                raise RuleError(f"{module.__name__} declares a second target {value.name!r}; give it another name")
    return found


def module_of(function: Any) -> str:
    """The name of a function's module. For a partial function, this is the module of the inner function."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", ""))


def listed(catalogs: Iterable[Catalog]) -> list[Catalog]:
    """Several catalogs as a list.

    Raises:
        TypeError: the argument is no list of catalogs, but a single catalog, for instance.
    """
    if isinstance(catalogs, str | ModuleType | RuleSet) or not isinstance(catalogs, Iterable):
        raise TypeError(f"catalog takes a list of modules, packages and RuleSets, got {catalogs!r}")
    return list(catalogs)


def installed_rules() -> RuleSet:
    """The rules of the catalogs that installed packages declare, ordered by package and entry point.

    Raises:
        RuleError: a catalog cannot be loaded, or two rules have one name; the message names the package.
    """
    found = {(_package(point), point.name, point.value): point for point in _entry_points()}
    return RuleSet(rule for key in sorted(found) for rule in _loaded(found[key]))


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
    points = sorted(_entry_points(), key=_package) if installed else []
    return found | {_package(point): point.dist.version for point in points if point.dist is not None}


def _entry_points() -> tuple[EntryPoint, ...]:
    """The entry points of the installed catalogs."""
    return _entry_points_of(tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=1)  # to read the metadata of all packages takes as long as to convert 20 nodes
def _entry_points_of(folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """The entry points of the installed catalogs while the import path and its folders stay as they are."""
    # `entry_points` parses the file of every package, although almost none names a catalog
    packages = {found.name for found in distributions() if GROUP in (found.read_text("entry_points.txt") or "")}
    points = (point for package in sorted(packages) for point in distribution(package).entry_points)
    return tuple(point for point in points if point.group == GROUP)


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


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def _loaded(point: EntryPoint) -> RuleSet:
    try:
        return rules_of(point.load())
    except Exception as error:  # the package's own code may raise any exception
        raise RuleError(
            f"the catalog {point.name!r} ({point.value}) of the installed package {_package(point)} cannot be loaded: "
            f"{type(error).__name__}: {error}; uninstall the package, or leave installed catalogs out with "
            "TorchConverter(installed_catalogs=False)"
        ) from error


def in_front(own: RuleSet, catalogs: Sequence[RuleSet], without: Iterable[str] = ()) -> RuleSet:
    """patcomp's own rules, with users' rules in front. Equal arguments return the same set.

    Args:
        own: patcomp's rules. A user's rule replaces the rule of the same name.
        catalogs: users' rules; the first catalog is tried first.
        without: the names of rules to leave out.

    Raises:
        RuleError: two users' rules have one name, or a user's rule has the name of a rule of patcomp with another
        purpose. ValueError: a name in `without` is not the name of a rule.
    """
    if isinstance(without, str):
        raise TypeError(f"without takes a list of names, got the string {without!r}")
    users = RuleSet(rule for catalog in catalogs for rule in catalog)
    for rule in users:
        if rule.name in own:
            _check_replacement(rule, own[rule.name])
    names = tuple(without)
    return _in_front(tuple(own), tuple(users), names) if users or names else own


def _replacing(rule: Rule, own: RuleSet) -> Rule:
    """A user's rule. If it replaces a rule of patcomp and names no targets, it gets the targets of the replaced
    rule."""
    if rule.targets or rule.name not in own or not (targets := own[rule.name].targets):
        return rule
    return replace(rule, targets=targets)


@lru_cache(maxsize=16)
def _in_front(own: tuple[Rule, ...], users: tuple[Rule, ...], without: tuple[str, ...]) -> RuleSet:
    """The combined rules. The result is cached, because the indexes of its stages cost more than a small conversion."""
    replaced = RuleSet(own)
    rules = replaced.preceded_by([_replacing(rule, replaced) for rule in users], override=True)
    for name in without:
        try:
            rules[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None
    return rules.without(*without)


def _check_replacement(rule: Rule, own: Rule) -> None:
    """Check that a rule can replace patcomp's rule of the same name. If not, the equal name is probably an accident.

    Raises:
        RuleError: the rule has another stage, or lacks an op.
    """
    reason = ""
    if rule.stage != own.stage:
        reason = f"that one belongs to the stage {own.stage}, and this one to {rule.stage}"
    elif not rule.is_declarative and not own.is_declarative and (missing := set(own.ops) - set(rule.ops)):
        reason = f"this one does not take {', '.join(sorted(missing))}, as that one does"
    if reason:
        raise RuleError(
            f"rule {rule.name} ({rule.source}) has the name of one of patcomp's ({own.source}) and would replace it, "
            f"but {reason}; give it another name, name=..."
        )

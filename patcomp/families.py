"""Families, a file each: the files of a folder are the list."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

_Base = TypeVar("_Base")


def modules_in(folder: str) -> list[ModuleType]:
    """The modules that are the files of a package, imported, ordered by name.

    Args:
        folder: the package, `patcomp.compression.schemes`.
    """
    names = sorted(name for _, name, _ in iter_modules(import_module(folder).__path__))
    return [import_module(f"{folder}.{name}") for name in names]


def classes_in(folder: str, base: type[_Base]) -> list[type[_Base]]:
    """The subclasses of a class that the files of a package define, ordered by their files.

    Args:
        folder: the package, `patcomp.compression.schemes`.
        base: the class, or an abstract one.
    """
    return [
        found
        for module in modules_in(folder)
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, base) and found.__module__ == module.__name__
    ]

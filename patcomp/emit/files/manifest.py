"""The manifest of an asset: what made it, as entries of its `metadata.json`.

The entries are `patcomp.version` and those of other tools, `patcomp.options`, `patcomp.rules`, and `patcomp.recipe`,
the command. They have no absolute paths and no times, so that the same command writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from patcomp.version import __version__

DATE = "%Y%m%dT%H%M%SZ"
"""The form of dates in `metadata.json`."""


def installed_versions(*packages: str) -> dict[str, str]:
    """The versions of those of some packages that are installed, by name."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def tool_versions() -> dict[str, str]:
    """The versions of patcomp and of what it makes assets with."""
    return {"version": __version__} | installed_versions("torch", "xdsl", "coreai-core")


Recipe = Callable[[], Mapping[str, Any]]
"""Gives a command as plain data: its arguments, and the hashes of the files that it reads."""

_command: ContextVar[tuple[Recipe, str] | None] = ContextVar("command", default=None)
"""The recipe of the command that runs, and the date at which it began."""


@contextmanager
def in_manifests(recipe: Recipe) -> Iterator[None]:
    """Around a command: the assets and bundles that it writes name it, and have the date at which it began.

    Args:
        recipe: is called when an asset is written.
    """
    token = _command.set((recipe, datetime.now(UTC).strftime(DATE)))
    try:
        yield
    finally:
        _command.reset(token)


def start_of_command() -> str | None:
    """The date at which the command that runs began; None if no command does."""
    running = _command.get()
    return None if running is None else running[1]


def current_recipe() -> dict[str, Any]:
    """The entry about the command that runs, as `recipe`; empty if no command does."""
    running = _command.get()
    return {} if running is None else {"recipe": dict(running[0]())}


def manifest_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """How an asset was made: versions, `options`, `rules`, and the command as `recipe`, if it was made by one.

    Args:
        metadata: what the `metadata.json` of the asset says.
    """
    found: dict[str, Any] = {}
    for name, text in creator_entries(metadata, "patcomp.").items():
        try:
            found[name] = json.loads(text) if text.startswith("{") else text
        except (ValueError, RecursionError):
            found[name] = text  # a stranger's
    return found


def creator_entries(metadata: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """The entries of the creator whose names start with a prefix, by the rest of the name."""
    entries = metadata.get("creatorDefinedMetadata")
    entries = entries if isinstance(entries, Mapping) else {}
    return {str(key).removeprefix(prefix): str(text) for key, text in entries.items() if str(key).startswith(prefix)}

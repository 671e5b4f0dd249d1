"""A check that reads bundles of every kind as Apple's Swift package does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp.bundle_folders.contract import problem
from patcomp.bundle_folders.errors import BundleError
from patcomp.bundle_folders.json_files import metadata_in
from patcomp.bundles.kind import VERSION, Kind, kinds
from patcomp.errors import Problem

_LANGUAGE = ("llm", "vlm")


def check_bundle(path: str | Path) -> tuple[Problem, ...]:
    """The parts of a bundle that Apple's Swift package would refuse or misread; empty if there are none.

    Args:
        path: the folder of the bundle.
    """
    from patcomp.language.bundle_check import check_bundle as check_language_bundle

    folder = Path(path)
    try:
        metadata = metadata_in(folder)
    except BundleError as error:
        return (problem(str(error)),)
    if metadata.get("kind") in _LANGUAGE:
        return check_language_bundle(folder)
    found, kind = _general(folder, metadata), _kind_called(metadata.get("kind"))
    if kind is None:
        named = ", ".join((*_LANGUAGE, *(each.name for each in kinds())))
        return (problem(f"kind is {metadata.get('kind')!r}, and must be one of {named}"), *found)
    return tuple(found or kind.problems(folder, metadata))


def _kind_called(name: object) -> type[Kind] | None:
    return next((kind for kind in kinds() if kind.name == name), None)


def _general(folder: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with what bundles of all kinds have."""
    problems = []
    if metadata.get("metadata_version") != VERSION:
        problems.append(problem(f"metadata_version is {metadata.get('metadata_version')!r}, and must be {VERSION!r}"))
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        problems.append(problem("name is missing"))
    assets = metadata.get("assets")
    if not isinstance(assets, dict) or not assets or not all(isinstance(file, str) for file in assets.values()):
        return [*problems, problem("assets is missing, or is no object of names of files")]
    lacking = [f"assets.{role} is {file}, which does not exist" for role, file in assets.items()
               if not (folder / file).is_dir()]  # fmt: skip
    return [*problems, *map(problem, lacking)]

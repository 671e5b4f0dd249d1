"""A check that reads bundles of every kind as Apple's Swift package does."""

from __future__ import annotations

from pathlib import Path

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import general_problems, problem
from patcomp_models.bundles.kind import kinds
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.untrusted import reading
from patcomp_models.errors import BundleError


def check_bundle(path: str | Path) -> tuple[Problem, ...]:
    """The parts of a bundle that Apple's Swift package would refuse or misread; empty if there are none.

    Args:
        path: the folder of the bundle.
    """
    folder = Path(path)
    try:
        metadata = metadata_in(folder)
    except BundleError as error:
        return (problem(str(error)),)
    found = general_problems(folder, metadata)
    kind = next((each for each in kinds() if each.name == metadata.get("kind")), None)
    if kind is None:
        named = ", ".join(each.name for each in kinds())
        return (problem(f"kind is {metadata.get('kind')!r}, and must be one of {named}"), *found)
    try:
        with reading(folder):
            return tuple(found or kind.problems(folder, metadata))
    except BundleError as error:
        return (problem(str(error)),)

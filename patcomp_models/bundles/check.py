"""A check that reads bundles of every kind as Apple's Swift package does."""

from __future__ import annotations

from pathlib import Path

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import general_problems, problem
from patcomp_models.bundle_folders.revisions import FURTHER_KINDS, OLD, check_revision, field_problems
from patcomp_models.bundles.kind import kinds
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.untrusted import reading
from patcomp_models.errors import BundleError


def check_bundle(path: str | Path, revision: str = OLD) -> tuple[Problem, ...]:
    """The parts of a bundle that Apple's Swift package would refuse or misread; empty if there are none.

    Args:
        path: the folder of the bundle.
        revision: of Apple's package, `"86b363d"` or the later `"34ab73d"`. Of the later one, the kinds, the fields of
            `language` and `diffusion`, and the functions of growing caches are known; in all else it is checked as the
            earlier one.

    Raises:
        BundleError: there is no contract of this revision.
    """
    check_revision(revision)
    folder = Path(path)
    try:
        metadata = metadata_in(folder)
    except BundleError as error:
        return (problem(str(error)),)
    found = [*general_problems(folder, metadata), *field_problems(metadata, revision)]
    kind = next((each for each in kinds() if each.name == metadata.get("kind")), None)
    if metadata.get("kind") in FURTHER_KINDS[revision]:
        return (problem(f"bundles of the kind {metadata['kind']!r} are not checked; patcomp makes none"), *found)
    if kind is None:
        named = ", ".join(each.name for each in kinds())
        return (problem(f"kind is {metadata.get('kind')!r}, and must be one of {named}"), *found)
    try:
        with reading(folder):
            return tuple(found or kind.problems(folder, metadata, revision))
    except BundleError as error:
        return (problem(str(error)),)

"""A check that reads bundles of every kind as Apple's Swift package does."""

from __future__ import annotations

from pathlib import Path

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import general_problems, problem
from patcomp_models.bundle_folders.revisions import LATER_KINDS, OLD, check_revision, field_problems
from patcomp_models.bundles.kind import kinds
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.untrusted import reading
from patcomp_models.errors import BundleError


def check_bundle(path: str | Path, revision: str = OLD) -> tuple[Problem, ...]:
    """The parts of a bundle that Apple's Swift package would refuse or misread; empty if there are none.

    Args:
        path: the folder of the bundle.
        revision: of Apple's package, `"86b363d"` or the later `"34ab73d"`. Of the later one, the kinds, the fields of
            `language` and `diffusion`, FLUX.2, and the functions of growing caches and of fixed sizes are known; in
            all else it is checked as the earlier one.

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
    named, later = metadata.get("kind"), {each for further in LATER_KINDS.values() for each in further}
    known = [each for each in kinds() if each.name not in later or each.name in LATER_KINDS[revision]]
    kind = next((each for each in known if each.name == named), None)
    if kind is None and named in LATER_KINDS[revision]:
        return (problem(f"bundles of the kind {named!r} are not checked; patcomp makes none"), *found)
    if kind is None:
        return (problem(f"kind is {named!r}, and must be one of {', '.join(each.name for each in known)}"), *found)
    try:
        with reading(folder):
            return tuple(found or kind.problems(folder, metadata, revision))
    except BundleError as error:
        return (problem(str(error)),)

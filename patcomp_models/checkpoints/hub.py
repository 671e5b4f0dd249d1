"""Checkpoints by name: a folder, or an id of the Hugging Face hub where the user is online."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from patcomp.errors import reason_of
from patcomp.hub import is_hub_id
from patcomp_models.checkpoints.untrusted import check_folder
from patcomp_models.errors import LanguageModelError

_DATA = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt", "README.md"]
"""The files of a checkpoint that hold data: no pickled weights, and no code."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine."""

    folder: Path
    name: str
    """The name of the folder, or that of the id."""
    identifier: str
    """The path, or the id."""


def checkpoint_of(given: str | Path, *, trust_remote_code: bool = False) -> Checkpoint:
    """The checkpoint of a folder's path; an id of the hub is downloaded into the cache of `huggingface_hub`.

    The folder is checked, because it may be a stranger's.

    Args:
        given: a path or an id, `owner/name`.
        trust_remote_code: whether to download Python files, too.

    Raises:
        LanguageModelError: the hub cannot be reached, or has no such checkpoint; or the folder has what leads out of
            it.
    """
    if not is_hub_id(given):
        check_folder(Path(given), LanguageModelError)
        return Checkpoint(Path(given), Path(os.path.realpath(given)).name, str(Path(given)))
    from huggingface_hub import snapshot_download

    identifier = str(given)
    try:
        folder = snapshot_download(identifier, allow_patterns=[*_DATA, *["*.py"] * trust_remote_code])
    except (OSError, ValueError, RuntimeError) as error:  # errors of the network and of the hub are of these classes
        raise LanguageModelError(
            f"there is no folder {identifier!r}, and the hub does not give a checkpoint of this id: "
            f"{reason_of(error)}; give the folder of a checkpoint that was downloaded elsewhere"
        ) from error
    check_folder(Path(folder), LanguageModelError)
    return Checkpoint(Path(folder), identifier.rpartition("/")[2], identifier)

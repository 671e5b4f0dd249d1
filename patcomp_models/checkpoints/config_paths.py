"""Find paths in an untrusted configuration that lead outside of its folder: a library would open them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp_models.checkpoints.config_numbers import leaves
from patcomp_models.errors import BundleError

_OPENED = re.compile(
    r"(?!special_tokens_map_file)(\w+_)?file"  # tokenizers of transformers; pretrained_cfg of timm
    r"|url|local_dir|hf_hub_id"  # timm
    r"|vlm_model_name"  # lerobot
    r"|audio_tokenizer_name_or_path"  # processors of transformers
)
"""Keys whose values a version of a library opens, if they are files or folders. No library opens what `_name_or_path`
and `special_tokens_map_file` name, which checkpoints have from where they were saved."""
_OPENED_AS_PATHS = re.compile("architecture|backbone")
"""Keys of timm and transformers whose values are names of architectures, unless they look like paths."""
_SCHEME = re.compile(r"^(local-dir:|file:(//)?)")
_LONGEST = 4096
"""More characters than the path of a file has."""


def check_paths(root: Path, file: Path, config: Mapping[str, Any], error: type[BundleError]) -> None:
    """Check the paths that a configuration names, also in its parts.

    Args:
        root: the folder that was given, which has the file.
        file: of the configuration.
        config: its content.
        error: what is raised.

    Raises:
        BundleError: a key whose value libraries open names a file or folder of this machine outside of the folder.
    """
    for key, value in leaves(config):
        if isinstance(value, str) and (other := _elsewhere(root, file.parent, key, value)) is not None:
            raise error(
                f"{key} of {str(file)!r} names {str(other)!r}, which is outside of the folder; leave the key out, or, "
                "if you trust what it names, copy that into the folder and name the copy"
            )


def roots_of(folder: Path) -> list[Path]:
    """The folders that the links of a folder may lead to: itself, and the files of a snapshot in the hub's cache."""
    place = Path(os.path.realpath(folder))
    snapshots = [each for each in (place, *place.parents) if each.parent.name == "snapshots"]
    return [place, *(each.parents[1] / "blobs" for each in snapshots[-1:])]


def _elsewhere(root: Path, folder: Path, key: str, value: str) -> Path | None:
    """The existing file or folder outside of `root` named by the text of a key, relative to the working directory or to
    `folder`; None if there is none.

    Args:
        root: what it may be in.
        folder: of the file that has the key.
    """
    name = _SCHEME.sub("", value)
    is_read = _OPENED.fullmatch(key) or (_OPENED_AS_PATHS.fullmatch(key) and (name != value or "/" in name))
    if not is_read or not name or not name.isprintable() or len(name) > _LONGEST:
        return None
    roots = roots_of(root)
    for path in (Path(os.path.expanduser(name)), folder / name):
        place = Path(os.path.realpath(path))
        if os.path.lexists(path) and not any(place.is_relative_to(each) for each in roots):
            return path
    return None

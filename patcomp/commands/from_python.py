"""What `patcomp.convert` does with the name of a file, a folder or a model: the same as the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from patcomp.commands.models import ModelOptions, load_sources
from patcomp.commands.packages import reader_of
from patcomp.commands.subjects import MODELS, Subject, becomes_bundle, subject_of
from patcomp.conversion.source import ModelSource


def is_for_bundle(model: str, save: str | Path | None) -> bool:
    """Whether a conversion makes a bundle.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: it is no model; or it makes a bundle, and `save` does not name a folder for it.
    """
    found = subject_of(model, "convert", (*MODELS, Subject.PIPELINE, Subject.GGUF))
    output = None if save is None else Path(save)
    if not becomes_bundle(model, found, output):
        return False
    if output is None or output.suffix == ".aimodel":
        raise ValueError(f"{model} is {found}, which becomes a bundle, a folder of assets; name it, save='NAME-bundle'")
    return True


def bundle_of(model: str, save: str | Path, *, verify: bool | None, target: Any, compress: Any) -> Path:
    """Convert the folder of a model, or of several, to a bundle; return its folder. Raises what the package raises
    that reads such folders."""
    checked = verify is None or verify
    return reader_of(Subject.BUNDLE).bundle_of(model, Path(save), verify=checked, target=target, compress=compress)


def sources_of_name(model: str) -> list[ModelSource]:
    """The functions of a model, as `load_sources`, with the default options of the command."""
    return load_sources(model, "convert", ModelOptions())

"""Models of folders and of names, as the functions that commands convert."""

from __future__ import annotations

from pathlib import Path

from patcomp.commands.common import UsageError, require_transformers
from patcomp.commands.models import ModelOptions
from patcomp.commands.subjects import Subject
from patcomp.conversion.source import ModelSource

_FOR_MODULES = ("dynamic", "strict", "train")


def check_model(model: str, found: Subject, options: ModelOptions) -> None:
    """Check the options for the model of a folder, or of a name, and the folder, without PyTorch.

    Raises:
        UsageError: an option does not fit such models.
        PatcompError: the folder is not a checkpoint, or transformers is not installed.
    """
    if unused := options.given(*_FOR_MODULES):
        raise UsageError(f"{model} is {found}, whose task decides {', '.join(unused)}; leave it out")
    require_transformers("the model of a folder")
    _size_in(options.image)
    if found is Subject.FOLDER:
        from patcomp_models.checkpoints.contents import check_contents

        check_contents(Path(model))


def sources_of(model: str, options: ModelOptions) -> list[ModelSource]:
    """The functions of the model of a folder, or of a name.

    Raises:
        PatcompError: the model cannot be loaded or exported.
    """
    from patcomp_models.checkpoints.agreement import Allowed
    from patcomp_models.tasks.folder_to_program import entries_of, exported_entry

    entries = entries_of(
        model, options.export.half or "float32", chosen=options.task, weights=options.weights,
        image=_size_in(options.image), trust_remote_code=options.trusted,
        allowed=Allowed.of(options.allow_missing or [], options.allow_unexpected or []),
    )  # fmt: skip
    return [
        ModelSource(
            model,
            exported_entry(entry, options.assume_branch),
            entry.module,
            entry=entry.name,
            input_names=entry.given,
            output_names=entry.outputs,
            state_names=entry.states,
        )
        for entry in entries
    ]


def _size_in(image: str | None) -> tuple[int, int] | None:
    """The height and width in the value of --image."""
    if image is None:
        return None
    sizes = image.split("x")
    if len(sizes) != 2 or not all(size.isdecimal() and int(size) for size in sizes):
        raise UsageError(f"--image takes the height and width of an image, such as 480x640, got {image!r}")
    return int(sizes[0]), int(sizes[1])

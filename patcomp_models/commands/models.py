"""Models of folders and of names, as the functions that commands convert."""

from __future__ import annotations

from pathlib import Path

from patcomp.commands.common import UsageError, require_transformers
from patcomp.commands.models import ModelOptions
from patcomp.commands.subjects import Subject
from patcomp.conversion.source import ModelSource
from patcomp_models.commands.preprocessing import image_size_in, preprocessing_in

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
    image_size_in(options)
    if settings := preprocessing_in(options):
        raise UsageError(
            f"--preprocess {', '.join(settings)}: the image processor of {found} says this; give --preprocess image"
        )
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
        image=image_size_in(options), trust_remote_code=options.trusted,
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

"""From the folder of a model to a program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from torch.export import ExportedProgram

from patcomp import AIProgram, TorchConverter
from patcomp.errors import PatcompError, reason_of
from patcomp.hub import TIMM
from patcomp.pytorch import small_tensors_as_numbers
from patcomp.targets import Target
from patcomp_models.checkpoints.agreement import STRICT, Allowed
from patcomp_models.checkpoints.exporting import exported_module, sizes_kept_by_the_caller
from patcomp_models.checkpoints.folders import (
    LANGUAGE_MODELS,
    check_class,
    check_weight_files,
    checked_folder,
    class_name,
)
from patcomp_models.checkpoints.hub import checkpoint_of
from patcomp_models.checkpoints.loading import classes_of, loaded
from patcomp_models.tasks import robots, timm_models
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.images import OptionalImage, with_image
from patcomp_models.tasks.table import CHOSEN, TASKS, refusal, task_of


def convert_folder(
    folder: str | Path,
    *,
    task: Literal["embedding", "rerank", "boxes"] | None = None,
    weights: str | Path | None = None,
    image: OptionalImage = False,
    dtype: Literal["float16", "bfloat16", "float32"] = "float32",
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    allow_missing: str | Sequence[str] = (),
    allow_unexpected: str | Sequence[str] = (),
    trust_remote_code: bool = False,
    assume_branch: bool = False,
    converter: TorchConverter | None = None,
    **options: Any,
) -> AIProgram:
    """Convert the model of a checkpoint folder of transformers or timm; its class says the task.

    Args:
        folder: has `config.json` and `*.safetensors`; or an id of the hub, `"owner/name"`, which is downloaded; or
            timm's name of an architecture, `"timm:resnet18"`, with `weights`.
        task: `"embedding"` for one vector of a text, with the pooling of sentence-transformers' `modules.json`;
            `"rerank"` for one score of a text; `"boxes"` for the scores, labels and boxes of a detector. By default the
            class of the model says the task.
        weights: the file of the weights of a model by name, `.safetensors`, or `.pth` of tensors alone.
        image: whether an image of bytes is the input `image` instead of `pixel_values`: the image processor of the
            folder becomes part of the program. True for an image of the size that the model takes, or its height and
            width.
        dtype: the type of the weights.
        target: a device, as in `TorchConverter.to_coreai`.
        allow_missing: names of weights, or patterns such as `"classifier.*"`, that the checkpoint may lack, or have in
            another shape; they are drawn at random, and a warning names them.
        allow_unexpected: the same for weights that the model has no place for; they are left out.
        trust_remote_code: whether to run code of the folder.
        assume_branch: whether a decision by data is that for example inputs, as in `patcomp.export`.
        converter: one with own rules or lowerings; by default a new one.
        options: further ones of `TorchConverter.to_coreai`.

    Raises:
        PatcompError: the folder is not a complete checkpoint, its task is not known, or ops cannot be converted.
    """
    converter = converter or TorchConverter()
    allowed = Allowed.of(allow_missing, allow_unexpected)
    for entry in entries_of(
        folder, dtype, chosen=task, weights=weights, image=image, trust_remote_code=trust_remote_code, allowed=allowed
    ):
        with sizes_kept_by_the_caller() if entry.keeps_sizes else nullcontext():
            converter.add_exported_program(
                exported_entry(entry, assume_branch), entry.given, entry.outputs, entry.states or None,
                entrypoint_name=entry.name,
            )  # fmt: skip
    return converter.to_coreai(target=target, **options)


def entries_of(
    folder: str | Path,
    dtype: str = "float32",
    *,
    chosen: str | None = None,
    weights: str | Path | None = None,
    image: OptionalImage = False,
    trust_remote_code: bool = False,
    allowed: Allowed = STRICT,
) -> list[Entry]:
    """The functions of the model of a folder, or of a name.

    Args:
        chosen: the task, if the user chooses it; other arguments are those of `convert_folder`.

    Raises:
        PatcompError: as `convert_folder`.
    """
    if chosen is not None and chosen not in CHOSEN:
        raise PatcompError(f"the task {chosen!r} is not known; the tasks to choose are {', '.join(CHOSEN)}")
    if isinstance(folder, str) and folder.startswith(TIMM):
        return timm_models.of_name(folder.removeprefix(TIMM), weights, dtype, allowed, image)
    if weights is not None:
        raise PatcompError(f"weights= (--weights) goes with a model by name, {TIMM}resnet18")
    place = checkpoint_of(folder, trust_remote_code=trust_remote_code).folder
    config = checked_folder(place, trust_remote_code=trust_remote_code)
    if "pretrained_cfg" in config:
        check_weight_files(place, config)
        return timm_models.timm_functions(place, config, dtype, allowed, image)
    if "architectures" not in config and config.get("type") in robots.POLICY_KINDS:
        if image:
            raise PatcompError("the observations of a policy are floats; leave image= (--preprocess, --image) out")
        check_weight_files(place, config)
        return robots.policy_functions(place, config, dtype, allowed)
    name = class_name(config)
    if name.endswith(LANGUAGE_MODELS) and chosen is None:
        raise PatcompError(
            f"{str(place)!r} holds {name}; language models become bundles, by patcomp convert-lm, or in Python by "
            "patcomp.convert(FOLDER, save=BUNDLE)"
        )
    if chosen is None and (why := refusal(name)):
        raise PatcompError(f"{str(place)!r} holds {name}, which is not converted: {why}; export it by FILE.py:FUNCTION")
    task = task_of(name, chosen)
    if task is None:
        known = ", ".join(dict.fromkeys(each.name for each in TASKS))
        raise PatcompError(f"{str(place)!r} holds {name}, and no task takes it; known tasks: {known}")
    purpose, auto = f"for {task.name}", task.auto.format(name)
    classes = classes_of(auto, config)
    if not task.heads or not classes:  # otherwise the folder may name a class with a head
        check_class(place, config, auto, classes, purpose)
    check_weight_files(place, config)
    allowed = Allowed((*allowed.missing, *task.heads), (*allowed.unexpected, *task.heads))
    model = loaded(auto, purpose, place, dtype, trust_remote_code, allowed)
    try:
        found = task.entries(model, place)
    except PatcompError:
        raise
    except Exception as error:  # the model's own code runs on an example and may raise any exception
        raise PatcompError(
            f"{name} in {str(place)!r} does not run on the inputs of models {purpose}: {reason_of(error)}; export it "
            "by FILE.py:FUNCTION, a function that returns the module and its inputs"
        ) from error
    return found if image is False else with_image(found, place, image)


def exported_entry(entry: Entry, assume_branch: bool = False) -> ExportedProgram:
    """A function as an exported program; `assume_branch` as in `patcomp.export`.

    Raises:
        PatcompError: the export fails.
    """
    shapes: tuple[Any, ...] = tuple(entry.dynamic.get(name) or None for name in entry.inputs)
    taken = [*signature(entry.module.forward).parameters.values()]
    if taken and taken[-1].kind is Parameter.VAR_POSITIONAL and any(shapes):
        rest = shapes[len(taken) - 1 :]
        shapes = (*shapes[: len(taken) - 1], *([rest] if rest else []))
    with small_tensors_as_numbers():
        return exported_module(
            entry.module,
            tuple(entry.inputs.values()),
            f"the function {entry.name!r}",
            shapes if any(shapes) else None,
            draft=True,
            assume_branch=assume_branch,
            has_sums_of_sizes=entry.has_sums_of_sizes,
        )

"""From the folder of a model to a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch.export import ExportedProgram, export

from patcomp import AIProgram, TorchConverter
from patcomp.errors import PatcompError
from patcomp.hub import TIMM
from patcomp.language.hub import checkpoint_of
from patcomp.language.loading import checked_folder, loaded
from patcomp.targets import Target
from patcomp.tasks import timm_models
from patcomp.tasks.entries import Entry
from patcomp.tasks.table import TASKS, task_of


def convert_folder(
    folder: str | Path,
    *,
    weights: str | Path | None = None,
    dtype: Literal["float16", "bfloat16", "float32"] = "float32",
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    trust_remote_code: bool = False,
    converter: TorchConverter | None = None,
    **options: Any,
) -> AIProgram:
    """Convert the model of a checkpoint folder of transformers or timm; its class says the task.

    Args:
        folder: has `config.json` and `*.safetensors`; or an id of the hub, `"owner/name"`, which is downloaded; or
            timm's name of an architecture, `"timm:resnet18"`, with `weights`.
        weights: the file of the weights of a model by name, `.safetensors`, or `.pth` of tensors alone.
        dtype: the type of the weights.
        target: a device, as in `TorchConverter.to_coreai`.
        trust_remote_code: whether to run code of the folder.
        converter: one with own rules or lowerings; by default a new one.
        options: further ones of `TorchConverter.to_coreai`.

    Raises:
        PatcompError: the folder is no complete checkpoint, or of a task that is not known; or ops cannot be converted.
    """
    converter = converter or TorchConverter()
    for entry in entries_of(folder, dtype, weights=weights, trust_remote_code=trust_remote_code):
        converter.add_exported_program(
            exported(entry), entry.given, entry.outputs, entry.states or None, entrypoint_name=entry.name
        )
    return converter.to_coreai(target=target, **options)


def entries_of(
    folder: str | Path,
    dtype: str = "float32",
    *,
    weights: str | Path | None = None,
    trust_remote_code: bool = False,
) -> list[Entry]:
    """The functions of the model of a folder, or of a name.

    Raises:
        PatcompError: as `convert_folder`.
    """
    if isinstance(folder, str) and folder.startswith(TIMM):
        return timm_models.of_name(folder.removeprefix(TIMM), weights, dtype)
    if weights is not None:
        raise PatcompError(f"weights= (--weights) goes with a model by name, {TIMM}resnet18")
    place = checkpoint_of(folder, trust_remote_code=trust_remote_code).folder
    config = checked_folder(place, trust_remote_code=trust_remote_code)
    if "pretrained_cfg" in config:
        return timm_models.of_folder(place, config, dtype)
    names = config.get("architectures") or ["a model without a name"]
    task = task_of(names[0])
    if task is None:
        advice = f"it is for one of these tasks: {', '.join(each.name for each in TASKS)}"
        if names[0].endswith("ForCausalLM"):
            advice = "language models are converted by patcomp convert-lm"
        raise PatcompError(f"{str(place)!r} holds {names[0]}, whose task is not known; {advice}")
    model = loaded(task.auto, f"for {task.name}", place, dtype, trust_remote_code)
    return task.entries(model, place)


def exported(entry: Entry) -> ExportedProgram:
    """A function as an exported program."""
    shapes = tuple(entry.dynamic.get(name) or None for name in entry.inputs)
    with torch.no_grad():
        return export(
            entry.module, tuple(entry.inputs.values()), dynamic_shapes=(shapes if any(shapes) else None), strict=False
        )

"""From the folder of a model to a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch.export import ExportedProgram, export

from patcomp import AIProgram, TorchConverter
from patcomp.errors import PatcompError
from patcomp.language.hub import checkpoint_of
from patcomp.language.loading import DTYPES, checked_folder, loaded
from patcomp.targets import Target
from patcomp.tasks.entries import Entry
from patcomp.tasks.table import TASKS, task_of


def convert_folder(
    folder: str | Path,
    *,
    dtype: Literal["float16", "bfloat16", "float32"] = "float32",
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    trust_remote_code: bool = False,
    converter: TorchConverter | None = None,
    **options: Any,
) -> AIProgram:
    """Convert the model of a checkpoint folder of transformers or timm; its class says the task.

    Args:
        folder: has `config.json` and `*.safetensors`; or an id of the hub, `"owner/name"`, which is downloaded.
        dtype: the type of the weights.
        target: a device, as in `TorchConverter.to_coreai`.
        trust_remote_code: whether to run code of the folder.
        converter: one with own rules or lowerings; by default a new one.
        options: further ones of `TorchConverter.to_coreai`.

    Raises:
        PatcompError: the folder is no complete checkpoint, or of a task that is not known; or ops cannot be converted.
    """
    converter = converter or TorchConverter()
    for entry in entries_of(folder, dtype, trust_remote_code=trust_remote_code):
        converter.add_exported_program(
            exported(entry), entry.given, entry.outputs, entry.states or None, entrypoint_name=entry.name
        )
    return converter.to_coreai(target=target, **options)


def entries_of(folder: str | Path, dtype: str = "float32", *, trust_remote_code: bool = False) -> list[Entry]:
    """The functions of the model of a folder.

    Raises:
        PatcompError: as `convert_folder`.
    """
    place = checkpoint_of(folder, trust_remote_code=trust_remote_code).folder
    config = checked_folder(place, trust_remote_code=trust_remote_code)
    if "pretrained_cfg" in config:
        return _of_timm(place, config, dtype)
    names = config.get("architectures") or ["a model without a name"]
    task = task_of(names[0])
    if task is None:
        advice = f"it is for one of these tasks: {', '.join(each.name for each in TASKS)}"
        if names[0].endswith("ForCausalLM"):
            advice = "language models are converted by patcomp convert-lm"
        raise PatcompError(f"{str(place)!r} holds {names[0]}, whose task is not known; {advice}")
    model = loaded(task.auto, f"for {task.name}", place, dtype, trust_remote_code)
    return task.entries(model, place)


def _of_timm(folder: Path, config: dict[str, Any], dtype: str) -> list[Entry]:
    """An image model of timm."""
    try:
        import timm
    except ImportError:
        raise PatcompError(f"{str(folder)!r} holds a model of timm; pip install timm") from None
    model = timm.create_model(f"local-dir:{folder.resolve()}", pretrained=True).to(DTYPES[dtype]).eval()
    channels, height, width = config["pretrained_cfg"]["input_size"]
    image = torch.linspace(-1, 1, channels * height * width, dtype=DTYPES[dtype]).reshape(1, channels, height, width)
    return [Entry("main", model, {"pixel_values": image}, ("logits",))]


def exported(entry: Entry) -> ExportedProgram:
    """A function as an exported program."""
    shapes = tuple(entry.dynamic.get(name) or None for name in entry.inputs)
    with torch.no_grad():
        return export(
            entry.module, tuple(entry.inputs.values()), dynamic_shapes=(shapes if any(shapes) else None), strict=False
        )

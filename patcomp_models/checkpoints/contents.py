"""Whether a folder holds a checkpoint, by the names of its files. Nothing here imports PyTorch."""

from __future__ import annotations

from pathlib import Path

from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import LanguageModelError

ADAPTER = "adapter_config.json"
"""The file by which the folder of an adapter of peft is known."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_AS_SAVED = "give the folder of a checkpoint as transformers saves it, with config.json and *.safetensors"


def check_contents(folder: Path) -> None:
    """Check that a folder may hold a checkpoint; `checked_folder` reads it.

    Raises:
        LanguageModelError: there is no such folder, or it holds something else.
    """
    if not folder.is_dir():
        what = f"{str(folder)!r} is a file" if folder.exists() else f"there is no folder {str(folder)!r}"
        raise LanguageModelError(f"{what}; give the folder of a checkpoint, with config.json")
    if other := _other_contents(folder):
        raise LanguageModelError(f"{str(folder)!r} {other}")


def _other_contents(folder: Path) -> str:
    """Describe the contents of a folder that is no checkpoint, and what to do; empty for a possible checkpoint."""
    names = {path.name for path in folder.iterdir()}
    if "main.mlirb" in names:
        return "is an asset, which is converted already"
    if ADAPTER in names:
        return adapter_of(folder)
    if "model_index.json" in names:
        return "holds a pipeline of diffusers, which has several models; `patcomp convert` makes a bundle of them"
    if "config.json" in names:
        return ""
    if not names:
        return f"is empty; {_AS_SAVED}"
    if any(name.endswith(".gguf") for name in names):
        return "holds files of GGUF; give one of them, FILE.gguf"
    if "metadata.json" in names and any(name.endswith(".aimodel") for name in names):
        return "is a bundle, which is converted already"
    return f"has no config.json, so it is not the folder of a checkpoint; {_AS_SAVED}"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter of peft, and no model."""
    return (folder / ADAPTER).is_file() and not (folder / "config.json").is_file()


def adapter_of(folder: Path) -> str:
    """Explain why the folder of an adapter is not converted here, and what to do.

    If peft is installed, transformers would load the model that `base_model_name_or_path` names.
    """
    base = object_in(folder / ADAPTER, LanguageModelError).get("base_model_name_or_path")
    return (
        f"holds an adapter for {base}, and only whole models are converted here; `patcomp convert-lm` merges adapters "
        "into language models; for another model, merge it (merge_and_unload of peft) and give the folder of the result"
    )

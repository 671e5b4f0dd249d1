"""The folders of segmenters: how their images are normalised, and the tokenizer of their texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import BundleError


def json_in(folder: Path, name: str) -> dict[str, Any]:
    """The content of a file.

    Raises:
        BundleError: it is missing, or no JSON.
    """
    try:
        return object_in(folder / name)
    except FileNotFoundError:
        raise BundleError(f"{str(folder)!r} has no {name}") from None


def normalisation(folder: Path) -> tuple[list[float], list[float]]:
    """Mean and deviation of the image processor, whose settings have their own file or are in the processor's.

    Raises:
        BundleError: the folder has no image processor, or it says neither.
    """
    whole = folder / "processor_config.json"
    found = json_in(folder, whole.name if whole.is_file() else "preprocessor_config.json")
    settings = found.get("image_processor", found)
    if not settings.get("do_normalize", True):
        return [0.0] * 3, [1.0] * 3
    try:
        return list(settings["image_mean"]), list(settings["image_std"])
    except KeyError as error:
        raise BundleError(f"the image processor of {str(folder)!r} has no {error.args[0]}") from None


def check_for_texts(folder: Path) -> None:
    """Check what Swift does to images and texts of a segmenter that is asked by a text.

    Raises:
        BundleError: images are normalised in another way, or there is no tokenizer.
    """
    mean, deviation = normalisation(folder)
    if {*mean, *deviation} != {0.5}:
        raise BundleError(f"images are normalised by {mean} and {deviation}, and Swift does it by 0.5")
    if not (folder / "tokenizer.json").is_file():
        raise BundleError(f"{str(folder)!r} has no tokenizer.json; save the tokenizer of the texts there")

"""Pictures of any shape, as the processor of a checkpoint prepares them: tiles, and what stands around them.

A bundle has the processor in a folder. Its function `main` of the vision tower takes one tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.errors import reason_of
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.checkpoints.untrusted import check_folder, inside
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.images import opened


def loaded_processor(folder: Path) -> Any:
    """The processor of images and text in a folder; no code of the folder is run.

    Raises:
        LanguageModelError: there is none, its files are damaged, or they name what is outside of the folder.
    """
    from transformers import AutoProcessor, ProcessorMixin

    check_folder(folder, LanguageModelError)
    try:
        found = AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many classes for folders that lack a part
        raise LanguageModelError(f"{str(folder)!r} has no processor of images and text: {reason_of(error)}") from error
    if not isinstance(found, ProcessorMixin):
        raise LanguageModelError(
            f"{str(folder)!r} has no processor of images and text, but a {type(found).__name__}; complete its files"
        )
    return found


def prepared_pictures(
    folder: Path, vision: Mapping[str, Any], text: str, images: Sequence[Any]
) -> tuple[list[int], list[np.ndarray]]:
    """The tokens of a prompt with those of its pictures, and the tiles of the pictures.

    Args:
        folder: of the bundle.
        vision: the block `vision` of `metadata.json`.
        text: the prompt, with the placeholder of the processor once for each picture.
        images: paths of files, or images of Pillow.

    Returns:
        Tokens, and tiles of (1, 3, size, size) of float32.

    Raises:
        LanguageModelError: the prompt does not go with the pictures, or a tile is not of the bundle's size.
    """
    processor = loaded_processor(
        inside(folder, vision[PROCESSOR], f"vision.{PROCESSOR} of metadata.json", LanguageModelError)
    )
    pictures = [opened(each) for each in images]
    try:
        made = processor(text=[text], images=[pictures], return_tensors="pt")
    except (ValueError, IndexError, KeyError) as error:  # how processors say that places and pictures differ
        raise LanguageModelError(f"the processor of {str(folder)!r} refuses the prompt: {reason_of(error)}") from error
    tiles = tiles_of(made["pixel_values"].float().numpy())
    size, count = int(vision["image_size"]), int(vision["image_token_count"])
    if tiles.shape[1:] != (3, size, size):
        raise LanguageModelError(
            f"the processor makes tiles of {' x '.join(map(str, tiles.shape[1:]))}, and the bundle takes 3 x {size} x "
            f"{size}; convert the model with the size of its processor"
        )
    tokens = made["input_ids"][0].tolist()
    found = tokens.count(int(vision["image_token_id"]))
    if found != len(tiles) * count:
        raise LanguageModelError(
            f"the prompt has {found} image tokens, and its {len(tiles)} tiles have {count} each; put the placeholder "
            "of the processor where each picture is to be"
        )
    return tokens, [tile[None] for tile in tiles]


def tiles_of(pixels: np.ndarray) -> np.ndarray:
    """The tiles of pictures, (tiles, 3, height, width).

    Args:
        pixels: (tiles, 3, height, width); or (prompts, tiles, 3, height, width), where tiles of zeros are none, as in
            Idefics3 and SmolVLM.
    """
    if pixels.ndim == 4:
        return pixels
    flat = pixels.reshape(-1, *pixels.shape[-3:])
    return flat[(flat != 0).any((1, 2, 3))]

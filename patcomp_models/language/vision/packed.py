"""Pictures of models that pack the features of tiles: laid out as the picture without padding, a row behind each line.

The bundle has the configuration of the model beside the processor, and the model's own function packs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from patcomp.errors import reason_of
from patcomp_models.checkpoints.loading import classes_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.images import opened
from patcomp_models.language.vision.pictures import check_shapes, loaded_processor, processed, processor_folder

PACKED = "packed"
"""The key of the block `vision` of `metadata.json` that says whether the model packs the features of tiles."""

Pack = Callable[[np.ndarray], np.ndarray]
"""Makes of the features of all tiles those of the image tokens."""


def packed_pictures(
    folder: Path, vision: Mapping[str, Any], text: str, images: Sequence[Any]
) -> tuple[list[int], list[np.ndarray], Pack]:
    """The tokens of a prompt with those of its pictures, the tiles of the pictures, and what packs their features.

    Args:
        folder: of the bundle.
        vision: the block `vision` of `metadata.json`.
        text: the prompt, with the placeholder of the processor once for each picture.
        images: paths of files, or images of Pillow.

    Returns:
        Tokens; tiles of (1, 3, size, size) of float32; and a function of the features of all tiles, (1, tiles * rows,
        width), the last row of a tile behind its tokens, to those of the image tokens, (1, image tokens, width).

    Raises:
        LanguageModelError: the prompt does not go with the pictures, a tile is not of the bundle's size, or the folder
            has no configuration of a model that packs tiles.
    """
    place = processor_folder(folder, vision)
    config, packer = _packer(place)
    pillow = [opened(each) for each in images]
    made = processed(loaded_processor(place), text, pillow, return_tensors=None, do_pad=False)
    pictures = [np.asarray(picture, np.float32) for picture in made["pixel_values"]]
    tiles = [tile[None] for picture in pictures for tile in picture]
    check_shapes(tiles, vision)
    tokens = [int(token) for token in made["input_ids"][0]]
    places = tokens.count(int(vision["image_token_id"]))
    options = {name: getattr(config, name) for name in inspect.signature(packer).parameters if hasattr(config, name)}
    # the last two are Granite Vision 4's, which asks whether it has projectors
    model = SimpleNamespace(
        config=config, downsample_rate=getattr(config, "downsample_rate", None), layerwise_projectors=()
    )
    sizes = [[int(side) for side in size] for size in made["image_sizes"]]

    def packed(features: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(features[0]).float().unflatten(0, (len(tiles), -1))
        parts = rows[:, :-1].split([len(picture) for picture in pictures])
        result = packer(model, parts, sizes, image_newline=rows[0, -1], **options)
        joined = torch.cat(result[0] if isinstance(result, tuple) else result)  # also the numbers of rows
        if len(joined) != places:
            raise LanguageModelError(
                f"the prompt has {places} image tokens, and its pictures have {len(joined)} features; put the "
                "placeholder of the processor where each picture is to be"
            )
        return joined[None].numpy().astype(features.dtype)

    return tokens, tiles, packed


def _packer(folder: Path) -> tuple[Any, Callable[..., Any]]:
    """The configuration of a model, and its function that packs the features of tiles.

    Raises:
        LanguageModelError: the folder has no such configuration.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many classes for damaged files
        raise LanguageModelError(f"{str(folder)!r} has no configuration of a model: {reason_of(error)}") from error
    found = [each for each in classes_of("AutoModel", {"model_type": config.model_type})
             if hasattr(each, "pack_image_features")]  # fmt: skip
    if not found:
        raise LanguageModelError(
            f"{str(folder)!r} has the configuration of {config.model_type!r}, which packs no tiles"
        )
    return config, found[0].pack_image_features

"""Pictures of any shape, as the processor of a checkpoint prepares them: tiles, and what stands around them.

A bundle has the processor in a folder. Its function `main` of the vision tower takes one tile. If the model packs the
features of tiles, its configuration is in the same folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from patcomp.errors import reason_of
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.checkpoints.loading import classes_of
from patcomp_models.checkpoints.untrusted import check_folder, inside
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.images import opened

PACKED = "packed"
"""The key of the block `vision` of `metadata.json` that says whether the model packs the features of tiles."""


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


@dataclass(frozen=True)
class Pictures:
    """The pictures of a prompt, prepared.

    Attributes:
        tokens: of the prompt, with those of the pictures.
        tiles: of all pictures, each (1, 3, size, size) of float32.
        counts: how many tiles each picture has; empty if the features of tiles are those of the pictures.
        sizes: height and width of each picture.
        places: how many image tokens the prompt has.
        config: of a model that packs the features of tiles, or None.
    """

    tokens: list[int]
    tiles: list[np.ndarray]
    counts: list[int]
    sizes: list[list[int]]
    places: int
    config: Any

    def features(self, of_tiles: np.ndarray) -> np.ndarray:
        """The features of the image tokens, (1, image tokens, width), by the model's own function.

        Args:
            of_tiles: one behind the other, (1, tiles * rows, width); the last row of a tile ends a line.

        Raises:
            LanguageModelError: the prompt has another number of image tokens.
        """
        if self.config is None:
            return of_tiles
        rows = torch.from_numpy(of_tiles[0]).float().unflatten(0, (len(self.tiles), -1))
        function = _packer(self.config).pack_image_features
        options = {name: getattr(self.config, name) for name in inspect.signature(function).parameters
                   if hasattr(self.config, name)}  # fmt: skip
        packed = function(
            SimpleNamespace(config=self.config), rows[:, :-1].split(self.counts), self.sizes,
            image_newline=rows[0, -1], **options,
        )  # fmt: skip
        made = torch.cat(packed[0] if isinstance(packed, tuple) else packed)  # also the numbers of rows
        if len(made) != self.places:
            raise LanguageModelError(
                f"the prompt has {self.places} image tokens, and its pictures have {len(made)} features; put the "
                "placeholder of the processor where each picture is to be"
            )
        return made[None].numpy().astype(of_tiles.dtype)


def prepared_pictures(folder: Path, vision: Mapping[str, Any], text: str, images: Sequence[Any]) -> Pictures:
    """The tokens of a prompt with those of its pictures, and the tiles of the pictures.

    Args:
        folder: of the bundle.
        vision: the block `vision` of `metadata.json`.
        text: the prompt, with the placeholder of the processor once for each picture.
        images: paths of files, or images of Pillow.

    Raises:
        LanguageModelError: the prompt does not go with the pictures, or a tile is not of the bundle's size.
    """
    place = inside(folder, vision[PROCESSOR], f"vision.{PROCESSOR} of metadata.json", LanguageModelError)
    processor, config = loaded_processor(place), _packing(place) if vision.get(PACKED) else None
    pictures = [opened(each) for each in images]
    options: dict[str, Any] = {"return_tensors": "pt"} if config is None else {"return_tensors": None, "do_pad": False}
    try:
        made = processor(text=[text], images=[pictures], **options)
    except (ValueError, IndexError, KeyError) as error:  # how processors say that places and pictures differ
        raise LanguageModelError(f"the processor of {str(folder)!r} refuses the prompt: {reason_of(error)}") from error
    if config is None:
        tiles, counts, sizes = tiles_of(made["pixel_values"].float().numpy()), [], []
    else:
        each_picture = [np.asarray(picture, np.float32) for picture in made["pixel_values"]]
        tiles, counts = np.concatenate(each_picture), [len(picture) for picture in each_picture]
        sizes = [[int(side) for side in size] for size in made["image_sizes"]]
    size, count = int(vision["image_size"]), int(vision["image_token_count"])
    if tiles.shape[1:] != (3, size, size):
        raise LanguageModelError(
            f"the processor makes tiles of {' x '.join(map(str, tiles.shape[1:]))}, and the bundle takes 3 x {size} x "
            f"{size}; convert the model with the size of its processor"
        )
    tokens = [int(token) for token in made["input_ids"][0]]
    found = tokens.count(int(vision["image_token_id"]))
    if config is None and found != len(tiles) * count:
        raise LanguageModelError(
            f"the prompt has {found} image tokens, and its {len(tiles)} tiles have {count} each; put the placeholder "
            "of the processor where each picture is to be"
        )
    return Pictures(tokens, [tile[None] for tile in tiles], counts, sizes, found, config)


def _packing(folder: Path) -> Any:
    """The configuration of a model that packs the features of tiles.

    Raises:
        LanguageModelError: the folder has none.
    """
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many classes for damaged files
        raise LanguageModelError(f"{str(folder)!r} has no configuration of a model: {reason_of(error)}") from error
    if not hasattr(_packer(found), "pack_image_features"):
        raise LanguageModelError(f"{str(folder)!r} has the configuration of {found.model_type!r}, which packs no tiles")
    return found


def _packer(config: Any) -> Any:
    """The class of a model, by its configuration."""
    return next(iter(classes_of("AutoModel", {"model_type": config.model_type})), None)


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

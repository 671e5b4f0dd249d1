"""Pictures of any shape, as the processor of a checkpoint prepares them: tiles or patches, and what stands around them.

A bundle has the processor in a folder. A function of the vision tower takes one tile, or an image of one shape.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patcomp.errors import ConversionWarning, reason_of
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.checkpoints.untrusted import check_folder, inside
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.images import opened, resized_picture
from patcomp_models.language.vision.shapes import IMAGE_PARTS, IMAGE_SHAPES, image_functions, nearest_shape, sides

if TYPE_CHECKING:
    from PIL.Image import Image

PATCHES = "patches"
"""A key of the block `vision` of `metadata.json`: how the processor arranges patches of an image as rows."""
_GRIDS = ("image_grid_thw", "image_grid_hw", "spatial_shapes", "target_sizes")
"""What processors call the rows and columns of patches, which are the last two numbers of each image."""
_PLACES = "image_position_ids"
"""The column and row of each patch, and -1 for padding: Gemma 4."""
_PADDED = {"spatial_shapes", _PLACES}
"""What processors say that pad the patches of each image."""


def loaded_processor(folder: Path) -> Any:
    """The processor of images and text in a folder; no code of the folder is run.

    Raises:
        LanguageModelError: there is none, its files are damaged, or they name what is outside of the folder.
    """
    from transformers import AutoProcessor, ProcessorMixin

    from patcomp_models.checkpoints.own_extractors import own_processor

    check_folder(folder, LanguageModelError)
    try:
        found = own_processor(folder) or AutoProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # transformers raises many classes for folders that lack a part
        raise LanguageModelError(f"{str(folder)!r} has no processor of images and text: {reason_of(error)}") from error
    if not isinstance(found, ProcessorMixin):
        raise LanguageModelError(
            f"{str(folder)!r} has no processor of images and text, but a {type(found).__name__}; complete its files"
        )
    return found


def processor_folder(bundle: Path, vision: Mapping[str, Any]) -> Path:
    """The folder of the processor in a bundle."""
    return inside(bundle, vision[PROCESSOR], f"vision.{PROCESSOR} of metadata.json", LanguageModelError)


def processed(processor: Any, text: str, pictures: Sequence[Image], **options: Any) -> Mapping[str, Any]:
    """What a processor makes of a prompt with pictures; `options` may have recordings (`audio`) and videos.

    Raises:
        LanguageModelError: the prompt does not go with the pictures.
    """
    images = {"images": [*pictures]} if pictures else {}
    try:
        made: Mapping[str, Any] = processor(text=[text], **images, **options)
    except (ValueError, IndexError, KeyError, TypeError) as error:  # how processors say what they do not take
        raise LanguageModelError(f"the bundle's processor refuses the prompt: {reason_of(error)}") from error
    return made


def check_shapes(pixels: Sequence[np.ndarray], vision: Mapping[str, Any]) -> None:
    """Check that a bundle takes the images that its processor makes, (1, 3, height, width).

    Raises:
        LanguageModelError: an image is of no shape of the bundle.
    """
    functions = image_functions(vision)
    for each in pixels:
        if each.shape[2:] not in functions:
            raise LanguageModelError(
                f"the processor makes images of {sides(each.shape[2:])}, and the bundle takes "
                f"{', '.join(map(sides, functions))}; convert the model with sizes that its processor makes"
            )


def prepared_pictures(
    folder: Path, vision: Mapping[str, Any], text: str, images: Sequence[Any], **others: Any
) -> tuple[list[int], list[np.ndarray], Mapping[str, Any]]:
    """The tokens of a prompt with those of its pictures, the tiles of the pictures, and all that the processor made.

    Args:
        folder: of the bundle.
        vision: the block `vision` of `metadata.json`.
        text: the prompt, with the placeholder of the processor once for each picture.
        images: paths of files, or images of Pillow.
        others: what else the processor takes.

    Returns:
        Tokens, images of (1, 3, height, width) of float32, and all. If the bundle has no function for what the
        processor makes of a picture, the picture is first resized to the nearest shape, with a warning.

    Raises:
        LanguageModelError: the prompt does not go with the pictures, or an image is of no shape of the bundle.
    """
    processor, functions = loaded_processor(processor_folder(folder, vision)), image_functions(vision)
    pictures = [opened(each) for each in images]
    made = processed(processor, text, pictures, return_tensors="pt", **others)
    pixels = images_made(made, vision) if "pixel_values" in made else []
    if IMAGE_SHAPES in vision and any(each.shape[2:] not in functions for each in pixels):
        fitted = [_fitted(picture, processor, vision) for picture in pictures]
        made = processed(processor, text, fitted, return_tensors="pt", **others)
        pixels = images_made(made, vision)
    check_shapes(pixels, vision)
    tokens = made["input_ids"][0].tolist()
    found, wanted = tokens.count(int(vision["image_token_id"])), [functions[each.shape[2:]].tokens for each in pixels]
    if found != sum(wanted) and (pixels or "pixel_values_videos" not in made):
        raise LanguageModelError(
            f"the prompt has {found} image tokens, and its images have {' + '.join(map(str, wanted))}; put the "
            "placeholder of the processor where each picture is to be"
        )
    return tokens, pixels, made


def _fitted(picture: Image, processor: Any, vision: Mapping[str, Any]) -> Image:
    """A picture of which the processor makes shapes of the bundle; resized if it does not."""
    start, end = (getattr(processor, f"image_{side}_token", None) or "" for side in ("start", "end"))
    alone = processed(processor, f"{start}{processor.image_token}{end}", [picture], return_tensors="pt")
    made = [each.shape[2:] for each in images_made(alone, vision)]
    if not set(made) - image_functions(vision).keys():
        return picture
    shape = nearest_shape(vision, made[-1])
    warnings.warn(
        f"the processor makes {sides(made[-1])} of a picture, and the bundle has no function for this height x width; "
        f"the picture is resized to {sides(shape)} (convert the model with image_shapes={sides(made[-1])!r})",
        ConversionWarning,
        stacklevel=2,
    )
    return resized_picture(picture, shape, vision)


def images_made(made: Mapping[str, Any], vision: Mapping[str, Any]) -> list[np.ndarray]:
    """Images, (1, 3, height, width), from what a processor makes.

    Raises:
        LanguageModelError: patches are of another size than the bundle's.
    """
    values = made["pixel_values"].float().numpy()
    if IMAGE_PARTS in vision:
        return _views(made, values)
    if IMAGE_SHAPES not in vision:
        return [tile[None] for tile in tiles_of(values)]
    if PATCHES not in vision:  # pixels, padded to the largest image
        sizes = made["image_sizes"].tolist() if "image_sizes" in made else _whole_patches(made, vision)
        values = values.reshape(-1, *values.shape[-3:])
        return [image[None, :, :height, :width] for image, (height, width) in zip(values, sizes, strict=True)]
    size, layout, grids = int(vision["patch_size"]), vision[PATCHES], _grids(made)
    counts = [math.prod(grid) for grid in grids]
    if _PADDED & made.keys():  # to the largest number of patches
        parts = [part[:count] for part, count in zip(values, counts, strict=True)]
    else:
        parts = np.split(patch_rows(values), np.cumsum(counts)[:-1])
    return [pixels_of_patches(part, grid, size, **layout) for part, grid in zip(parts, grids, strict=True)]


def _whole_patches(made: Mapping[str, Any], vision: Mapping[str, Any]) -> list[list[int]]:
    """Height and width of images without padding, (prompts, images, height, width), in whole patches."""
    masks, size = made["pixel_attention_mask"].flatten(0, 1).bool(), int(vision["patch_size"])
    return [[int(mask.any(axis).sum()) // size * size for axis in (1, 0)] for mask in masks]


def _views(made: Mapping[str, Any], whole: np.ndarray) -> list[np.ndarray]:
    """The views of pictures in the order of their features: the parts of a picture, then the whole (DeepSeek-OCR 2)."""
    parts = iter(made["pixel_values_local"].float().numpy() if "pixel_values_local" in made else ())
    counts = made["num_local_patches"].tolist()
    return [view[None] for each, count in zip(whole, counts, strict=True) for view in (*islice(parts, count), each)]


def _grids(made: Mapping[str, Any]) -> list[list[int]]:
    """How many rows and columns of patches each image has."""
    if _PLACES in made:
        return [[row + 1, column + 1] for column, row in made[_PLACES].amax(1).tolist()]
    found: list[list[int]] = next(made[key] for key in _GRIDS if key in made)[:, -2:].tolist()
    return found


def patch_rows(patches: np.ndarray) -> np.ndarray:
    """Patches as rows, (patches, ...), also of one image of the height of a patch, (1, 3, size, patches * size)."""
    if patches.ndim < 4 or len(patches) != 1:
        return patches
    return patches.reshape(*patches.shape[1:3], -1, patches.shape[2]).transpose(2, 0, 1, 3)


def pixels_of_patches(
    patches: np.ndarray,
    grid: Sequence[int],
    size: int,
    *,
    merged: int,
    channels_last: bool,
    moments_first: bool = False,
    moment: int = 0,
) -> np.ndarray:
    """An image, (1, 3, height, width), from its patches as rows, of which a model of videos has each moment.

    Args:
        patches: (rows * columns, ...).
        grid: how many rows and columns of patches the image has.
        size: of a patch.
        merged: the side of the squares of patches whose rows are one behind the other.
        channels_last: whether the channels of a pixel are one behind the other.
        moments_first: whether each moment is one behind the other; else each channel is.
        moment: which one the image is of.

    Raises:
        LanguageModelError: the patches are of another size.
    """
    rows, columns = grid
    flat: Any = patches.reshape(len(patches), -1)
    moments = flat.shape[1] // (3 * size * size)
    if flat.shape != (rows * columns, 3 * size * size * moments) or (channels_last and moments != 1):
        raise LanguageModelError(
            f"the processor makes {len(flat)} patches of {flat.shape[1]} numbers, and the bundle takes {rows} x "
            f"{columns} patches of {size} x {size} pixels; the processor is another model's"
        )
    images = flat.reshape(-1, size, size, 3).transpose(0, 3, 1, 2) if channels_last else flat
    chosen = images.reshape(-1, 3, moments, size, size)[:, :, moment]
    if moments_first:
        chosen = images.reshape(-1, moments, 3, size, size)[:, moment]
    parts = chosen.reshape(rows // merged, columns // merged, merged, merged, 3, size, size)
    return parts.transpose(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, rows * size, columns * size)


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

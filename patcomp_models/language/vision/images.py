"""Images of files for a bundle, prepared as the settings of the bundle say. It needs Pillow."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patcomp.errors import ConversionWarning, reason_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.settings import CROP, PAD
from patcomp_models.language.vision.shapes import IMAGE_SHAPES, ImageShape, image_functions, nearest_shape, sides

if TYPE_CHECKING:
    from PIL.Image import Image

_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""The settings that Apple's package takes for those that a bundle does not have: those of CLIP."""
_STRETCH = 0.05
"""Height by width may change by so much without a warning; the processors themselves round sides."""


def pixels_of(image: Any, vision: Mapping[str, Any]) -> np.ndarray:
    """The pixels that a function of a bundle's tower takes, (1, 3, height, width) of float32.

    If the tower takes any shape, a picture gets the nearest shape of the bundle, with a warning if it is stretched.

    Args:
        image: the path of a file; an image of Pillow; or pixels that are prepared already, (1, 3, height, width).
        vision: the block `vision` of `metadata.json`.

    Raises:
        LanguageModelError: the file is not an image, prepared pixels are of another shape, or Pillow is not installed.
    """
    if isinstance(image, np.ndarray):
        shapes = image_functions(vision)
        if image.shape[:2] != (1, 3) or image.shape[2:] not in shapes:
            wanted = " or ".join(f"1 x 3 x {height} x {width}" for height, width in shapes)
            raise LanguageModelError(f"the pixels are of shape {list(image.shape)}; they must be {wanted}")
        return image.astype(np.float32)
    picture = opened(image)
    sized = (
        _nearest(picture, vision) if IMAGE_SHAPES in vision else _squared(picture, int(vision["image_size"]), vision)
    )
    values = np.asarray(sized, np.float32).transpose(2, 0, 1) / 255 * np.float32(vision.get("rescale_factor", 1.0))
    mean, std = (
        np.array(vision.get(key, default), np.float32)[:, None, None]
        for key, default in (("image_mean", _MEAN), ("image_std", _STD))
    )
    return ((values - mean) / std)[None].astype(np.float32)


def opened(image: Any) -> Image:
    """A picture in RGB, from the path of a file or an image of Pillow.

    Raises:
        LanguageModelError: the file is not an image, or Pillow is not installed.
    """
    return (_opened(image) if isinstance(image, str | Path) else image).convert("RGB")


def _opened(path: str | Path) -> Image:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise LanguageModelError('image files need Pillow: pip install "patcomp[models]"') from error
    if not Path(path).is_file():
        raise LanguageModelError(f"there is no file {str(path)!r}; give the path of an image")
    try:
        with Image.open(path) as image:
            image.load()
            return ImageOps.exif_transpose(image)
    except Exception as error:  # Pillow's readers raise many classes for damaged files
        raise LanguageModelError(f"{str(path)!r} is not an image that Pillow reads: {reason_of(error)}") from error


def resized_picture(image: Image, shape: ImageShape, vision: Mapping[str, Any]) -> Image:
    """A picture of another height and width."""
    from PIL import Image as Images

    sides = shape[1], shape[0]
    resample = Images.Resampling[str(vision.get("resample", "bicubic")).upper()]
    return image if image.size == sides else image.resize(sides, resample)


def _nearest(image: Image, vision: Mapping[str, Any]) -> Image:
    (width, height), shape = image.size, nearest_shape(vision, (image.height, image.width))
    if abs(shape[0] * width / (shape[1] * height) - 1) > _STRETCH:
        warnings.warn(
            f"a picture of height x width {height}x{width} is stretched to {sides(shape)}, the nearest shape of the "
            f"bundle; convert the model with {IMAGE_SHAPES}= for others",
            ConversionWarning,
            stacklevel=2,
        )
    return resized_picture(image, shape, vision)


def _squared(image: Image, size: int, vision: Mapping[str, Any]) -> Image:
    from PIL import Image as Images

    strategy = vision.get("image_strategy")
    width, height = image.size
    if strategy == PAD and width != height:
        side = max(width, height)
        ground = Images.new("RGB", (side, side), tuple(int(255 * mean) for mean in vision.get("image_mean", _MEAN)))
        ground.paste(image, ((side - width) // 2, (side - height) // 2))
        image = ground
    if strategy == CROP:
        scale = size / min(width, height)
        width, height = (size if side == min(width, height) else int(side * scale) for side in (width, height))
        left, top = (width - size) // 2, (height - size) // 2
        return resized_picture(image, (height, width), vision).crop((left, top, left + size, top + size))
    return resized_picture(image, (size, size), vision)

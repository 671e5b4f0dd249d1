"""How images are prepared for a model: the settings of its image processor, as a bundle has them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.untrusted import value_in
from patcomp_models.errors import LanguageModelError

STRETCH, CROP, PAD = "stretch", "center_crop", "pad"
"""What becomes of an image that is no square: `image_strategy` of a bundle."""
_CROPS, _TILE = "crop_to_patches", "tile_size"
_RESAMPLES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Pillow's filters by number."""
_TILES = ("do_image_splitting", _CROPS, "do_pan_and_scan", "slice_mode")
"""The settings by which processors make several tiles of an image: Idefics3, InternVL, Gemma 3, MiniCPM-V."""
_CANVASES = "image_grid_pinpoints"
"""The setting of processors that always make tiles, and an image of the whole, which is stretched: LLaVA-NeXT."""
_TILED = (_CANVASES, "resize_to_max_canvas")
"""The settings of processors that always make tiles; the last one is Llama 4's."""
_THUMB = "thumb+tile"
"""The `vision_input_type` of Perception LM's processor for tiles."""
TILES = (
    "the image processor makes several tiles of a large image, and the bundle makes one image of the whole, which "
    "shows less; give parts of it as several images"
)
"""A note about such a processor."""
TILES_HERE = (
    "Bundle.generate makes the tiles of the image processor; Apple's engine makes one image of the whole, which shows "
    "less"
)
"""A note about such a processor, of a bundle that has it."""
_PADDERS = ("LlavaImageProcessor", "JanusImageProcessor", "DeepseekVLImageProcessor")
"""The processors whose `do_pad` makes squares; the last two do so where a folder says nothing."""
_FILES = ("processor_config.json", "preprocessor_config.json")


@dataclass(frozen=True)
class ImageSettings:
    """How pixels are prepared: divided by 255, times `rescale`, less `mean`, by `std`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    rescale: float
    strategy: str
    resample: str
    size: int | None
    """The side of the square that the processor makes, or None if it makes images of any size."""
    makes_tiles: bool
    """Whether the processor also makes tiles of a large image, which a bundle does not."""
    part: int | None = None
    """The side of the tiles, if it is another one than that of the image of the whole: DeepSeek-OCR 2."""
    fine: bool = False
    """Whether each tile has more tokens: the fine path of Granite Docling."""

    @classmethod
    def of(cls, processor: Mapping[str, Any]) -> ImageSettings:
        """Read the settings of an image processor of transformers.

        Raises:
            LanguageModelError: a setting is missing, or a bundle cannot have it.
        """
        mean: tuple[float, ...] = (0.0,) * 3
        std: tuple[float, ...] = (1.0,) * 3
        if processor.get("do_normalize", True):
            mean, std = (_three(processor, key) for key in ("image_mean", "image_std"))
        if 0 in std:
            raise LanguageModelError(f"image_std of the image processor is {list(std)}; its numbers must not be 0")
        factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1.0
        if not isinstance(factor, int | float) or not math.isfinite(factor):
            raise LanguageModelError(f"rescale_factor of the image processor is {factor!r}, and must be a number")
        rescale = 255 * float(factor)
        number = processor.get("resample", 3)
        return cls(
            mean, std, 1.0 if math.isclose(rescale, 1.0) else rescale, _strategy(processor),
            _RESAMPLES.get(number, "bicubic") if isinstance(number, int) else str(number), _square(processor),
            makes_tiles(processor),
            processor[_TILE] if processor.get(_CROPS) and isinstance(processor.get(_TILE), int) else None,
            processor.get("fine_route") is True,
        )  # fmt: skip


def makes_tiles(processor: Mapping[str, Any]) -> bool:
    """Whether an image processor with these settings makes several tiles of a large image."""
    is_asked = any(processor.get(key) for key in _TILES) or processor.get("vision_input_type") == _THUMB
    return is_asked or any(key in processor for key in _TILED)


def _three(processor: Mapping[str, Any], key: str) -> tuple[float, ...]:
    """A number for each channel."""
    found = processor.get(key)
    if found is None:
        raise LanguageModelError(
            f"the image processor has no {key}, so it is not known how images are prepared; complete "
            "preprocessor_config.json, or pass image_processor="
        )
    numbers = [found] * 3 if isinstance(found, int | float) else found
    if not isinstance(numbers, list | tuple) or len(numbers) != 3 or not all(_is_number(each) for each in numbers):
        raise LanguageModelError(f"{key} of the image processor is {found!r}; it must be three numbers")
    return tuple(float(each) for each in numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _strategy(processor: Mapping[str, Any]) -> str:
    name = str(processor.get("image_processor_type", ""))
    if processor.get("do_pad", name.startswith(_PADDERS[1:])) and name.startswith(_PADDERS):
        return PAD  # the do_pad of other processors is about batches
    if not processor.get("do_center_crop") or _CANVASES in processor:
        return STRETCH
    edge, side = _sizes(processor, "size").get("shortest_edge"), _square(processor)
    if edge != side:
        warnings.warn(
            f"the image processor resizes the shorter side to {edge} before it crops {side}; the bundle resizes to "
            f"{side}, so its images show more",
            ConversionWarning,
            stacklevel=5,
        )
    return CROP


def _sizes(processor: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = processor.get(key)
    if isinstance(found, int):
        return {"height": found, "width": found, "shortest_edge": found}
    return dict(found) if isinstance(found, Mapping) else {}


def _square(processor: Mapping[str, Any]) -> int | None:
    """The side of the square that a processor makes of an image, or of a part of it."""
    size = _sizes(processor, "crop_size" if processor.get("do_center_crop") else "size")
    if isinstance(processor.get(_TILE), int) and _CROPS not in processor:
        return int(processor[_TILE])
    height, width = size.get("height"), size.get("width")
    if height is not None and width is not None:
        if height != width or not isinstance(height, int):
            raise LanguageModelError(
                f"the image processor makes images of {width} x {height}, and the images of a bundle are squares"
            )
        return height
    side = _sizes(processor, "max_image_size").get("longest_edge")
    return side if isinstance(side, int) else None


def processor_of(folder: Path) -> dict[str, Any]:
    """The settings of the image processor in the folder of a checkpoint, as they are stored.

    Raises:
        LanguageModelError: there are none.
    """
    for name in _FILES:
        file = folder / name
        if not file.is_file():
            continue
        found = value_in(file, LanguageModelError)
        if name == _FILES[0] and isinstance(found, dict):
            found = found.get("image_processor")  # the file also has other settings, and in some folders only these
        if isinstance(found, dict):
            return found
    raise LanguageModelError(
        f"{str(folder)!r} has no settings of an image processor ({_FILES[1]}), so it is not known how images are "
        "prepared; add the file, or pass image_processor="
    )


def settings_of(image_processor: Any, source: Path | None) -> ImageSettings:
    """The settings of the image processor that the user gives, or of the folder.

    Raises:
        LanguageModelError: there are none, or a bundle cannot have them.
    """
    if image_processor is None and source is not None:
        return ImageSettings.of(processor_of(source))
    if image_processor is None:
        raise LanguageModelError(
            "it is not known how images are prepared for the model; pass image_processor=, an image processor of "
            "transformers or a dict of its settings"
        )
    found = image_processor.to_dict() if hasattr(image_processor, "to_dict") else image_processor
    if not isinstance(found, Mapping):
        raise LanguageModelError(
            f"image_processor= takes an image processor of transformers or a dict of its settings, got "
            f"{type(image_processor).__name__}"
        )
    return ImageSettings.of(found)

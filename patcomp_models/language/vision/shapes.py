"""The functions of a vision tower: `main` for a square image, and one for each further shape, `main_448x672`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import MAIN

IMAGE_SHAPES = "image_shapes"
"""A key of the block `vision` of `metadata.json`, if the tower takes any shape: the functions beside `main`."""
IMAGE_PARTS = "image_parts"
"""A key of the same form, if the processor makes smaller images of parts of a picture: the functions for them."""
ONE_SHAPE = "one_shape"
"""A key of the block that says that the images of a prompt must be of one shape."""
SHAPE_KEYS = HEIGHT, WIDTH, TOKEN_COUNT = "height", "width", "image_token_count"
"""The keys of each of them."""

ImageShape = tuple[int, int]
"""Height and width, in pixels."""


@dataclass(frozen=True)
class ImageFunction:
    """A function of a vision tower."""

    name: str
    shape: ImageShape
    tokens: int
    """How many tokens an image has."""


def check_one_shape(shapes: Sequence[ImageShape], vision: Mapping[str, Any]) -> None:
    """Check that a bundle takes images of these shapes in one prompt.

    Raises:
        LanguageModelError: it takes images of one shape, and they are of several.
    """
    if vision.get(ONE_SHAPE) and len(set(shapes)) > 1:
        raise LanguageModelError(
            f"the images are of {', '.join(map(sides, dict.fromkeys(shapes)))}, and the model pads each to the "
            "largest, which changes its features; give images of one shape in a prompt"
        )


def function_name(shape: ImageShape, side: int) -> str:
    """The function for images of a shape; `main` takes squares of `side` pixels."""
    return MAIN if shape == (side, side) else f"{MAIN}_{sides(shape)}"


def sides(shape: Sequence[int]) -> str:
    """Height and width: `448x672`."""
    return "x".join(map(str, shape))


def image_functions(vision: Mapping[str, Any]) -> dict[ImageShape, ImageFunction]:
    """The functions of a vision tower, by shape.

    Args:
        vision: the block `vision` of `metadata.json`.
    """
    size = int(vision["image_size"])
    further = {**vision.get(IMAGE_SHAPES, {}), **vision.get(IMAGE_PARTS, {})}
    named = {MAIN: {HEIGHT: size, WIDTH: size, TOKEN_COUNT: vision.get(TOKEN_COUNT, 0)}, **further}
    made = (ImageFunction(name, (each[HEIGHT], each[WIDTH]), each[TOKEN_COUNT]) for name, each in named.items())
    return {each.shape: each for each in made}


def nearest_shape(vision: Mapping[str, Any], shape: ImageShape) -> ImageShape:
    """The shape of a function whose height by width is nearest to another shape's; of several, the nearest in size."""

    def distance(own: ImageShape) -> tuple[float, float]:
        heights, widths = (math.log(mine / other) for mine, other in zip(own, shape, strict=True))
        return round(abs(heights - widths), 6), abs(heights + widths)

    return min(image_functions(vision), key=distance)


def shapes_in(given: str | Sequence[str | Sequence[int]]) -> list[ImageShape]:
    """The shapes that a user asks for: `448x672`, or height and width; one, or several.

    Raises:
        LanguageModelError: one is neither.
    """
    made = []
    for each in [given] if isinstance(given, str) else given:
        sides = each.split("x") if isinstance(each, str) else each
        numbers = [*map(str, sides)] if isinstance(sides, list | tuple) else []
        if len(numbers) != 2 or not all(re.fullmatch("[0-9]+", number) for number in numbers):
            raise LanguageModelError(f"a shape is height x width, such as '448x672', got {each!r}")
        made.append((int(numbers[0]), int(numbers[1])))
    return list(dict.fromkeys(made))

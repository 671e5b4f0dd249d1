"""Generation with an image: the calls of a vision-language bundle, in the order in which Apple's engine makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import EMBEDDED, EMBEDDINGS, FEATURES, PIXELS, POSITIONS, TOKENS
from patcomp_models.language.generation import AssetCall
from patcomp_models.language.vision.shapes import image_functions

AssetRun = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Runs a function without states on inputs by name."""


def expanded_prompt(
    tokens: Sequence[int], vision: Mapping[str, Any], *, counts: Sequence[int], shown: str = ""
) -> list[int]:
    """A prompt with as many image tokens as images have features.

    Args:
        tokens: of the prompt, with one image token for each image, or already with all of them.
        vision: the block `vision` of `metadata.json`.
        counts: how many features each image has.
        shown: what stands for an image in a text.

    Raises:
        LanguageModelError: the prompt has no place for an image, or a place and no image, or another number of them.
    """
    image, images = int(vision["image_token_id"]), len(counts)
    found = sum(token == image for token in tokens)
    name = f"{shown!r} (token {image})" if shown else str(image)
    if not images and found:
        raise LanguageModelError(f"the prompt has the image token {name}, and there is no image")
    if not images or found == sum(counts):
        return list(tokens)
    if found != images:
        places = "once where the image is to be" if images == 1 else f"{images} times, where the images are to be"
        raise LanguageModelError(f"the prompt has the image token {name} {found} times; put it {places}")
    waiting = iter(counts)
    return [each for token in tokens for each in [token] * (next(waiting) if token == image else 1)]


def embedded_call(embed: AssetRun, main: AssetCall, features: Mapping[int, np.ndarray]) -> AssetCall:
    """A function of tokens, positions and states, from the function of embeddings.

    Args:
        embed: runs the function of the asset `embedding`.
        main: runs functions of the asset `main`.
        features: of images and sounds, (1, tokens, width), by their token. In the first call, the rows of this token
            are replaced by the features; by the last ones, if the call does not read the first token.
    """

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        tokens = np.asarray(inputs[TOKENS])
        embeddings = np.asarray(embed({TOKENS: tokens})[EMBEDDINGS]).copy()
        if tokens.shape == np.shape(inputs[POSITIONS]):
            for token, own in features.items():
                rows = tokens[0] == token
                embeddings[0, rows] = own[0, -rows.sum() or len(own[0]) :]
        others = {name: each for name, each in inputs.items() if name != TOKENS}
        return main(name, {EMBEDDED: embeddings, **others}, states)

    return call


def tower_run(run: Callable[..., Mapping[str, Any]], vision: Mapping[str, Any]) -> AssetRun:
    """A vision tower as one function, which takes images of each shape of the bundle.

    Args:
        run: runs a function of the asset `vision` on inputs and states, by the function's name.
        vision: the block `vision` of `metadata.json`.
    """
    functions = image_functions(vision)
    return lambda inputs: run(inputs, None, functions[inputs[PIXELS].shape[2:]].name)


def features_of(vision: AssetRun, *pixels: np.ndarray) -> np.ndarray:
    """The features of images one behind the other, (1, image tokens, width)."""
    return np.concatenate([np.asarray(vision({PIXELS: each})[FEATURES]) for each in pixels], 1)

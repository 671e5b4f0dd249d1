"""The contract of a vision-language bundle with Apple's Swift package, checked as the package reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import function_of, problem, shown_tensor
from patcomp_models.language.contract import (
    EMBEDDED,
    EMBEDDING,
    EMBEDDINGS,
    FEATURES,
    HIDDEN,
    LOGITS,
    MAIN,
    PIXELS,
    POSITIONS,
    TOKENS,
    TOWER,
    VISION,
)
from patcomp_models.language.dynamic_check import dynamic_state_problems, interface_problems, logits_problems
from patcomp_models.language.hearing import SOUND
from patcomp_models.language.sound_contract import sound_problems
from patcomp_models.language.vision.moments import FRAMES, MOMENT, VIDEO, VIDEO_SHAPES
from patcomp_models.language.vision.settings import CROP, PAD, STRETCH
from patcomp_models.language.vision.shapes import (
    HEIGHT,
    IMAGE_PARTS,
    IMAGE_SHAPES,
    SHAPE_KEYS,
    TOKEN_COUNT,
    WIDTH,
    ImageFunction,
    image_functions,
)  # fmt: skip

_COUNTS = ("image_size", "patch_size", "image_token_count")
_INTERFACES = {
    TOWER: ([PIXELS], [FEATURES]),
    EMBEDDING: ([TOKENS], [EMBEDDINGS]),
    MAIN: ([EMBEDDED, POSITIONS], [LOGITS]),
}
"""Inputs and outputs of the function `main` of each asset."""


def vision_problems(
    folder: Path, assets: Mapping[str, Any], language: dict[str, Any], vision: Any, audio: Any = None
) -> list[Problem]:  # fmt: skip
    """The problems of what a vision-language bundle has beside a language model's metadata.

    Args:
        folder: of the bundle.
        assets: by role.
        language: the block `language` of `metadata.json`.
        vision: its block `vision`.
        audio: its block `audio`, if the model also takes sound.
    """
    if not isinstance(vision, Mapping):
        return [problem("vision is missing")]
    problems = _keys(vision, language)
    described: dict[str, Any] = {}
    for role, (inputs, outputs) in _INTERFACES.items():
        if isinstance(assets.get(role), str):
            found, wrong = function_of(folder / assets[role])
            further = [[LOGITS, HIDDEN]] if role == MAIN else []
            wrong = wrong or interface_problems(f"the asset {role}", found, inputs, outputs, *further)
            problems += wrong
            if not wrong:
                described[role] = found
    if problems or len(described) < len(_INTERFACES):
        return problems
    if isinstance(assets.get(SOUND), str):
        problems += sound_problems(folder / assets[SOUND], audio, described[MAIN].inputs[EMBEDDED].shape[-1])
    return [
        *problems,
        *_sizes(described, language, vision),
        *_further(folder / assets[TOWER], described[MAIN], vision),
        *_videos(folder / assets[TOWER], described[MAIN], vision),
    ]


def _further(asset: Path, main: Any, vision: Mapping[str, Any]) -> list[Problem]:
    """The problems of the functions of a vision tower beside `main`."""
    problems = []
    for function in image_functions(vision).values():
        if function.name != MAIN:
            found, wrong = function_of(asset, function.name)
            wrong = wrong or interface_problems(f"{function.name} of the asset {TOWER}", found, *_INTERFACES[TOWER])
            problems += wrong or _image_problems(found, function, main)
    return problems


def _videos(asset: Path, main: Any, vision: Mapping[str, Any]) -> list[Problem]:
    """The problems of the functions of a vision tower for moments of videos."""
    video = vision.get(VIDEO, {})
    if not isinstance(video, Mapping) or not isinstance(video.get(VIDEO_SHAPES, {}), Mapping):
        return [problem(f"vision.{VIDEO} is {video!r}, and must be an object with the functions in {VIDEO_SHAPES}")]
    shapes, inputs = video.get(VIDEO_SHAPES, {}), [PIXELS, *([MOMENT] if "positions" in video else [])]
    if problems := _shape_keys(VIDEO_SHAPES, video, f"vision.{VIDEO}") or (_video_keys(video) if shapes else []):
        return problems
    for name, each in shapes.items():
        found, wrong = function_of(asset, name)
        wrong = wrong or interface_problems(f"{name} of the asset {TOWER}", found, inputs, [FEATURES])
        problems += wrong or [
            *_size_problems(found.inputs[PIXELS], f"{name}: {PIXELS}",
                            (video[FRAMES], 3, each[HEIGHT], each[WIDTH]), "float32"),
            *_size_problems(found.outputs[FEATURES], f"{name}: {FEATURES}",
                            (1, each[TOKEN_COUNT], main.inputs[EMBEDDED].shape[-1]), "float16"),
        ]  # fmt: skip
    return problems


def _video_keys(video: Mapping[str, Any]) -> list[Problem]:
    return [
        problem(f"vision.{VIDEO}.{key} is {video.get(key)!r}, and must be an integer of {least} or more")
        for key, least in (("video_token_id", 0), (FRAMES, 1))
        if type(video.get(key)) is not int or video[key] < least
    ]


def _keys(vision: Mapping[str, Any], language: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for key in _COUNTS:
        if type(vision.get(key)) is not int or vision[key] < 1:
            problems.append(problem(f"vision.{key} is {vision.get(key)!r}, and must be a positive integer"))
    if type(vision.get("image_token_id")) is not int or vision["image_token_id"] < 0:
        problems.append(problem(f"vision.image_token_id is {vision.get('image_token_id')!r}, and must be an integer"))
    for key in ("image_mean", "image_std"):
        given = vision.get(key)
        if given is not None and (not isinstance(given, list) or len(given) != 3 or not all(map(_is_number, given))):
            problems.append(problem(f"vision.{key} is {given!r}, and must be three numbers"))
    if isinstance(vision.get("image_std"), list) and 0 in vision["image_std"]:
        problems.append(problem("vision.image_std has a 0, by which pixels would be divided"))
    if not _is_number(vision.get("rescale_factor", 1.0)):
        problems.append(problem(f"vision.rescale_factor is {vision['rescale_factor']!r}, and must be a number"))
    if vision.get("image_strategy", STRETCH) not in (STRETCH, CROP, PAD):
        problems.append(
            problem(f"vision.image_strategy is {vision['image_strategy']!r}, and must be {STRETCH}, {CROP} or {PAD}")
        )
    problems += _shape_keys(IMAGE_SHAPES, vision) + _shape_keys(IMAGE_PARTS, vision)
    most = language.get("max_context_length")
    if problems or not isinstance(most, int):
        return problems
    counts = (each.tokens for each in image_functions(vision).values())
    return [
        problem(f"an image takes {count} tokens, and language.max_context_length is {most}")
        for count in counts
        if count >= most
    ]


def _shape_keys(key: str, vision: Mapping[str, Any], where: str = "vision") -> list[Problem]:
    """The problems of what `metadata.json` says of the functions beside `main`."""
    shapes = vision.get(key, {})
    if not isinstance(shapes, Mapping):
        return [problem(f"{where}.{key} is {shapes!r}, and must be an object of functions")]
    return [
        problem(f"{where}.{key}.{name} is {each!r}, and must have positive integers {', '.join(SHAPE_KEYS)}")
        for name, each in shapes.items()
        if not isinstance(each, Mapping) or any(type(each.get(key)) is not int or each[key] < 1 for key in SHAPE_KEYS)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _sizes(described: Mapping[str, Any], language: dict[str, Any], vision: Mapping[str, Any]) -> list[Problem]:
    """The problems of types and sizes; the widths of features and embeddings must be equal."""
    table, main = described[EMBEDDING], described[MAIN]
    width, square = main.inputs[EMBEDDED].shape[-1], (vision["image_size"], vision["image_size"])
    return [
        *_image_problems(described[TOWER], image_functions(vision)[square], main),
        *_size_problems(table.inputs[TOKENS], TOKENS, (1, None), "int32"),
        *_size_problems(table.outputs[EMBEDDINGS], EMBEDDINGS, (1, None, width), "float16"),
        *_size_problems(main.inputs[EMBEDDED], EMBEDDED, (1, None, width), "float16"),
        *_size_problems(main.inputs[POSITIONS], POSITIONS, (1, None), "int32"),
        *logits_problems(main.outputs[LOGITS], "", language.get("vocab_size")),
        *dynamic_state_problems(main, VISION),
    ]


def _image_problems(tower: Any, function: ImageFunction, main: Any) -> list[Problem]:
    """The problems of a function of the vision tower."""
    where = "" if function.name == MAIN else f"{function.name}: "
    width = main.inputs[EMBEDDED].shape[-1]
    return [
        *_size_problems(tower.inputs[PIXELS], f"{where}{PIXELS}", (1, 3, *function.shape), "float32"),
        *_size_problems(tower.outputs[FEATURES], f"{where}{FEATURES}", (1, function.tokens, width), "float16"),
    ]


def _size_problems(given: Any, name: str, shape: tuple[int | None, ...], dtype: str) -> list[Problem]:
    """What is wrong with the type or the shape of an input or output; None is any open size."""
    if given.shape == shape and given.dtype == dtype:
        return []
    wanted = " x ".join("?" if size is None else str(size) for size in shape)
    return [problem(f"{name} is {shown_tensor(given)}, and must be {wanted} of {dtype}")]

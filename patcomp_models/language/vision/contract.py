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
from patcomp_models.language.vision.settings import CROP, PAD, STRETCH

_COUNTS = ("image_size", "patch_size", "image_token_count")
_INTERFACES = {
    TOWER: ([PIXELS], [FEATURES]),
    EMBEDDING: ([TOKENS], [EMBEDDINGS]),
    MAIN: ([EMBEDDED, POSITIONS], [LOGITS]),
}
"""Inputs and outputs of the function `main` of each asset."""


def vision_problems(folder: Path, assets: Mapping[str, Any], language: dict[str, Any], vision: Any) -> list[Problem]:
    """The problems of what a vision-language bundle has beside a language model's metadata.

    Args:
        folder: of the bundle.
        assets: by role.
        language: the block `language` of `metadata.json`.
        vision: its block `vision`.
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
    return _sizes(described, language, vision)


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
    count, most = vision.get("image_token_count"), language.get("max_context_length")
    if isinstance(count, int) and isinstance(most, int) and count >= most:
        problems.append(problem(f"an image takes {count} tokens, and language.max_context_length is {most}"))
    return problems


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _sizes(described: Mapping[str, Any], language: dict[str, Any], vision: Mapping[str, Any]) -> list[Problem]:
    """The problems of types and sizes; the widths of features and embeddings must be equal."""
    tower, table, main = described[TOWER], described[EMBEDDING], described[MAIN]
    size, count = vision["image_size"], vision["image_token_count"]
    features, width = tower.outputs[FEATURES], main.inputs[EMBEDDED].shape[-1]
    return [
        *_size_problems(tower.inputs[PIXELS], PIXELS, (1, 3, size, size), "float32"),
        *_size_problems(features, FEATURES, (1, count, width), "float16"),
        *_size_problems(table.inputs[TOKENS], TOKENS, (1, None), "int32"),
        *_size_problems(table.outputs[EMBEDDINGS], EMBEDDINGS, (1, None, width), "float16"),
        *_size_problems(main.inputs[EMBEDDED], EMBEDDED, (1, None, width), "float16"),
        *_size_problems(main.inputs[POSITIONS], POSITIONS, (1, None), "int32"),
        *logits_problems(main.outputs[LOGITS], "", language.get("vocab_size")),
        *dynamic_state_problems(main, VISION),
    ]


def _size_problems(given: Any, name: str, shape: tuple[int | None, ...], dtype: str) -> list[Problem]:
    """What is wrong with the type or the shape of an input or output; None is any open size."""
    if given.shape == shape and given.dtype == dtype:
        return []
    wanted = " x ".join("?" if size is None else str(size) for size in shape)
    return [problem(f"{name} is {shown_tensor(given)}, and must be {wanted} of {dtype}")]

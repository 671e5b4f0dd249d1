"""The contract of the function `audio` of a bundle: what its metadata says of it, and its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface, Values, function_of, problem
from patcomp_models.language.hearing import FEWEST_FRAMES, FRAME_MASK, HEARD, NOISE, NOISE_SCALE, SOUND, WINDOW, read_by

SOUND_NUMBERS = ("audio_token_id", "axis")
"""The keys of the block `audio` of `metadata.json` that must be positive integers."""
_FURTHER: Values = {
    WINDOW: ((1,), ("int32",)), NOISE_SCALE: ((1,), ("float32",)), NOISE: ((1, None, "*"), ("float32",)),
}  # fmt: skip
"""The further inputs."""


def sound_key_problems(audio: Any, numbers: tuple[str, ...] = SOUND_NUMBERS) -> list[Problem]:
    """The problems of the block `audio` of `metadata.json`, in which `numbers` must be positive integers."""
    if not isinstance(audio, Mapping):
        return [problem(f"audio is {audio!r}, and must be an object")]
    found = [
        problem(f"audio.{name} is {audio.get(name)!r}, and must be a positive integer")
        for name in (*numbers, *({FEWEST_FRAMES, "step", "noise_width"} & audio.keys()))
        if type(audio.get(name)) is not int or audio[name] < 1
    ]
    if (frames := audio.get("frames")) is not None and (type(frames) is not int or frames < 1):
        found.append(problem(f"audio.frames is {frames!r}, and must be a positive integer, or null for any number"))
    if not isinstance(audio.get("mask"), str) or type(audio.get("is_cut")) is not bool:
        found.append(problem("audio.mask must be a text, and audio.is_cut true or false"))
    if unknown := [name for name in audio.get("further", []) if name not in _FURTHER]:
        found.append(problem(f"audio.further has {unknown[0]!r}, and may have {', '.join(_FURTHER)}"))
    return found


def sound_interface(audio: Mapping[str, Any], width: int | str) -> Interface:
    """What the function takes, and gives in rows of `width`."""
    frames = audio["frames"]
    read: Values = {read_by(audio): ((1, "*", frames) if audio["axis"] == 2 else (1, frames, "*"), ("float32",))}
    read = {**read, **({FRAME_MASK: ((1, frames), ("bool",))} if audio["mask"] else {}),
            **{name: _FURTHER[name] for name in audio.get("further", [])}}  # fmt: skip
    return Interface(read, {HEARD: ((1, "*", width), FLOATS)})


def sound_problems(asset: Path, audio: Any, width: int) -> list[Problem]:
    """The problems of the asset `audio` of a bundle that also takes images.

    Args:
        asset: the folder of it.
        audio: the block `audio` of `metadata.json`.
        width: of the rows that the language model takes.
    """
    if wrong := sound_key_problems(audio):
        return wrong
    found, wrong = function_of(asset, SOUND)
    return wrong or sound_interface(audio, width).problems(f"the asset {SOUND}", found)

"""A recording for a bundle: what the processor of the checkpoint makes of it, in windows of the bundle's size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.errors import reason_of
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import EMBEDDED, EMBEDDINGS, POSITIONS, TOKENS
from patcomp_models.language.generation import AssetCall
from patcomp_models.language.vision.pictures import loaded_processor

SOUND, EMBED = "audio", "embed"
"""The functions beside `main`."""
READ, SAMPLES, FRAME_MASK, HEARD = "input_features", "input_values", "frame_mask", "audio_features"
"""The inputs and the output of `audio`: of the first two, the one that `read` of the block `audio` names."""
WINDOW, NOISE_SCALE, NOISE = "window", "noise_scale", "noise"
"""Further inputs of `audio`, which `further` of the block names."""
SoundWindow = Mapping[str, np.ndarray]
"""The inputs of the function `audio`."""


def heard_prompt(
    folder: Path, audio: Mapping[str, Any], prompt: Any, recording: Any
) -> tuple[list[int], list[SoundWindow]]:
    """The tokens of a prompt, with one for each feature of its recording, and the windows of the recording.

    Args:
        folder: of the bundle.
        audio: the block `audio` of `metadata.json`.
        prompt: a text with the processor's placeholder; or token ids, with what the processor made of the recording.
        recording: samples at the rate of the model, (samples,) of floats from -1 to 1; or what the processor made.

    Raises:
        LanguageModelError: the processor refuses the prompt, or the recording is longer than a window of a model whose
            windows are not cut.
    """
    if isinstance(recording, Mapping):
        made, tokens = recording, [int(token) for token in prompt]
    elif isinstance(prompt, str):
        made = _processed(folder, prompt, np.asarray(recording, np.float32))
        tokens = made["input_ids"][0].tolist()
    else:
        raise LanguageModelError("token ids go with what the processor made of the recording, and samples with a text")
    if "delay" in audio and int(delay := made.get("num_delay_tokens", audio["delay"])) != audio["delay"]:
        raise LanguageModelError(
            f"the text comes {delay} tokens behind the sound, and the bundle is for {audio['delay']}; convert the "
            "model with this number as default_num_delay_tokens of config.json"
        )
    mask = np.asarray(made[audio["mask"]]) if audio["mask"] else None
    windows = sound_windows(np.asarray(made[read_by(audio)], np.float32), mask, audio)
    further = audio.get("further", [])
    if WINDOW in further:
        places = [number for number, token in enumerate(tokens) if token == audio["audio_token_id"]]
        if any(after != place + 1 for place, after in pairwise(places)):
            raise LanguageModelError("the prompt has several recordings, and the bundle takes one")
        windows = [{**each, WINDOW: np.array([place], np.int32)} for place, each in enumerate(windows)]
    if NOISE in further:
        windows = [{**each, **_noise(each[read_by(audio)].shape[2] // audio["step"], audio)} for each in windows]
    return tokens, windows


def _noise(tokens: int, audio: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Noise, as `generate` of transformers draws it with PyTorch's generator."""
    import torch

    return {NOISE_SCALE: torch.randn(1).numpy(), NOISE: torch.randn(1, tokens, audio["noise_width"]).numpy()}


def read_by(audio: Mapping[str, Any]) -> str:
    """The name of what the encoder reads.

    Args:
        audio: the block `audio` of `metadata.json`.
    """
    return str(audio.get("read", READ))


def _processed(folder: Path, text: str, samples: np.ndarray) -> Mapping[str, Any]:
    processor = loaded_processor(folder / PROCESSOR)
    if samples.ndim != 1 or not samples.size:
        raise LanguageModelError(f"a recording is one row of samples, got an array of {list(samples.shape)}")
    try:
        made: Mapping[str, Any] = processor(text=[text], audio=[samples], return_tensors="pt")
    except (ValueError, IndexError, KeyError, TypeError) as error:  # how processors say what they do not take
        raise LanguageModelError(
            f"the processor of {str(folder)!r} refuses the prompt: {reason_of(error)}; give token ids, and what the "
            "processor makes of the recording as audio="
        ) from error
    return made


def sound_windows(read: np.ndarray, mask: np.ndarray | None, audio: Mapping[str, Any]) -> list[SoundWindow]:
    """Windows of the bundle's size, with zeros behind the recording; or the recording itself, if it takes any size.

    Args:
        read: (parts, bins, frames), or (parts, frames, bins).
        mask: of the frames of the recording, (parts, frames).
        audio: the block `audio` of `metadata.json`.

    Raises:
        LanguageModelError: a part is longer than a window, and is not cut; or there are several recordings of any size.
    """
    name, axis = read_by(audio), int(audio["axis"])
    if audio["frames"] is None:
        if len(read) != 1:
            raise LanguageModelError(f"the processor made {len(read)} recordings, and the bundle takes one")
        step = int(audio.get("step", 1))
        if (rest := read.shape[axis] % step) and not audio.get("is_added"):
            raise LanguageModelError(
                f"the processor made {read.shape[axis]} frames, and the bundle takes a multiple of {step}; add silence"
            )
        return [{name: read.take(range(read.shape[axis] - rest), axis)}]  # less than a step is no token
    frames = int(audio["frames"])
    count = -(-read.shape[axis] // frames)
    if count > 1 and not audio["is_cut"]:
        raise LanguageModelError(
            f"the recording has {read.shape[axis]} frames, and the bundle takes {frames}; cut the recording"
        )
    missing = count * frames - read.shape[axis]
    read = np.pad(read, [(0, missing if place == axis else 0) for place in range(3)])
    parts = [part for row in read for part in np.split(row[None], count, axis)]
    if mask is None:
        return [{name: part} for part in parts]
    mask = np.pad(mask, ((0, 0), (0, missing))).astype(bool)
    return [
        {name: part, FRAME_MASK: own} for part, own in zip(parts, mask.reshape(-1, 1, frames), strict=True)
        if own.any()
    ]  # fmt: skip


def heard_call(
    embed: Callable[[Mapping[str, Any]], Mapping[str, Any]], main: AssetCall, features: np.ndarray
) -> AssetCall:
    """A function of tokens, positions and states, for a model that hears a feature beside each token.

    Args:
        embed: runs the function `embed`.
        main: runs functions of the asset.
        features: of the recording, (1, tokens, width).
    """

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        tokens = np.asarray(inputs[TOKENS])
        places = np.asarray(inputs[POSITIONS])[0, -tokens.shape[1] :]
        embeddings = np.asarray(embed({TOKENS: tokens})[EMBEDDINGS]) + features[:, places]
        others = {name: each for name, each in inputs.items() if name != TOKENS}
        return main(name, {EMBEDDED: embeddings, **others}, states)

    return call


def features_of_sound(
    run: Callable[[SoundWindow], Mapping[str, Any]], windows: list[SoundWindow], wanted: int, *, is_padded: bool = True
) -> np.ndarray:
    """The features of a recording, (1, audio tokens, width): all of each window, and the first ones of the last.

    Args:
        run: the function `audio`.
        windows: of the recording.
        wanted: the number of audio tokens.
        is_padded: whether silence may be behind the recording; otherwise all features are those of the recording.

    Raises:
        LanguageModelError: the windows have another number of tokens.
    """
    made = np.concatenate([np.asarray(run(each)[HEARD]) for each in windows], 1)
    count = made.shape[1] // len(windows)
    if not made.shape[1] - (count if is_padded else 1) < wanted <= made.shape[1]:
        raise LanguageModelError(
            f"the prompt has {wanted} audio tokens, and the {len(windows)} windows of the recording have {count} each; "
            "put the placeholder of the processor where the recording is to be, once"
        )
    return made[:, :wanted]

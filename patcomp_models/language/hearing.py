"""A recording for a bundle: what the processor of the checkpoint makes of it, in windows of the bundle's size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import EMBEDDED, EMBEDDINGS, POSITIONS, TOKENS
from patcomp_models.language.generation import AssetCall
from patcomp_models.language.vision.pictures import loaded_processor, processed

SOUND, EMBED = "audio", "embed"
"""The functions beside `main`."""
READ, SAMPLES, FRAME_MASK, HEARD = "input_features", "input_values", "frame_mask", "audio_features"
"""The inputs and the output of `audio`: of the first two, the one that `read` of the block `audio` names."""
WINDOW, NOISE_SCALE, NOISE = "window", "noise_scale", "noise"
"""Further inputs of `audio`, which `further` of the block names."""
FEWEST_FRAMES = "fewest_frames"
"""A key of the block `audio` of `metadata.json`: how many frames a recording must have."""
SoundWindow = Mapping[str, np.ndarray]
"""The inputs of the function `audio`."""


def several(given: Any) -> list[Any]:
    """Recordings, from one or a list of several; what a processor made of all of them is one."""
    if given is None:
        return []
    is_list = isinstance(given, list | tuple) and not (given and np.ndim(given[0]) == 0)
    return [*given] if is_list else [given]


def heard_prompt(
    folder: Path, audio: Mapping[str, Any], prompt: Any, recordings: Sequence[Any]
) -> tuple[list[int], list[list[SoundWindow]]]:
    """The tokens of a prompt, with one for each feature of its recordings, and the windows of each recording.

    Args:
        folder: of the bundle.
        audio: the block `audio` of `metadata.json`.
        prompt: a text with the processor's placeholder; or token ids, with what the processor made of the recordings.
        recordings: samples at the rate of the model, (samples,) of floats from -1 to 1; or what the processor made.

    Raises:
        LanguageModelError: the processor refuses the prompt, or a recording is longer than a window of a model whose
            windows are not cut.
    """
    if isinstance(recordings[0], Mapping):
        made, tokens = recordings[0], [int(token) for token in prompt]
    elif isinstance(prompt, str):
        made = _processed(folder, prompt, recordings)
        tokens = made["input_ids"][0].tolist()
    else:
        raise LanguageModelError("token ids go with what the processor made of the recording, and samples with a text")
    if "delay" in audio and int(delay := made.get("num_delay_tokens", audio["delay"])) != audio["delay"]:
        raise LanguageModelError(
            f"the text comes {delay} tokens behind the sound, and the bundle is for {audio['delay']}; convert the "
            "model with this number as default_num_delay_tokens of config.json"
        )
    return tokens, recordings_in(made, audio, len(sound_runs(tokens, audio)))


def rate_of(processor: Any) -> int | None:
    """The samples of a second that a processor takes, or an extractor alone; None if it takes no recordings."""
    part = getattr(processor, "audio_processor", getattr(processor, "feature_extractor", processor))
    rate = getattr(part, "sampling_rate", None)
    return None if rate is None else int(rate)


def read_by(audio: Mapping[str, Any]) -> str:
    """The name of what the encoder reads.

    Args:
        audio: the block `audio` of `metadata.json`.
    """
    return str(audio.get("read", READ))


def _processed(folder: Path, text: str, recordings: Sequence[Any]) -> Mapping[str, Any]:
    processor = loaded_processor(folder / PROCESSOR)
    return processed(processor, text, (), audio=[checked_samples(each) for each in recordings], return_tensors="pt")


def checked_samples(recording: Any) -> np.ndarray:
    """The samples of a recording, (samples,) of float32.

    Raises:
        LanguageModelError: they are not one row.
    """
    samples = np.asarray(recording, np.float32)
    if samples.ndim != 1 or not samples.size:
        raise LanguageModelError(f"a recording is one row of samples, got an array of {list(samples.shape)}")
    return samples


def sound_runs(tokens: Sequence[int], audio: Mapping[str, Any]) -> list[int]:
    """How many tokens of sound stand side by side, at each place of a prompt."""
    is_sound = [token == audio["audio_token_id"] for token in tokens]
    return [sum(1 for _ in run) for here, run in itertools.groupby(is_sound) if here]


def recordings_in(made: Mapping[str, Any], audio: Mapping[str, Any], count: int) -> list[list[SoundWindow]]:
    """The windows of each recording.

    Args:
        made: by the processor.
        audio: the block `audio` of `metadata.json`.
        count: at how many places of the prompt tokens of sound stand.

    Raises:
        LanguageModelError: it is not known which part is of which recording; or as of `sound_windows`.
    """
    name = read_by(audio)
    if name not in made:
        raise LanguageModelError(f"the processor made no {name} of the recording; put its placeholder into the prompt")
    read, mask = np.asarray(made[name], np.float32), np.asarray(made[audio["mask"]]) if audio["mask"] else None
    if min(count, len(read)) <= 1:
        return [_with_further(sound_windows(read, mask, audio), audio)]
    if len(read) != count:
        raise LanguageModelError(
            f"the processor makes {len(read)} parts of recordings at {count} places, and it is not known which part is "
            "of which recording; give one recording"
        )
    windows = (
        sound_windows(read[row : row + 1], None if mask is None else mask[row : row + 1], audio) for row in range(count)
    )
    return [_with_further(each, audio) for each in windows]


def _with_further(windows: list[SoundWindow], audio: Mapping[str, Any]) -> list[SoundWindow]:
    """The windows of a recording with the further inputs of `audio`; noise is what `generate` of transformers draws
    with PyTorch's generator."""
    further = audio.get("further", [])
    if WINDOW in further:
        windows = [{**each, WINDOW: np.array([place], np.int32)} for place, each in enumerate(windows)]
    if NOISE in further:
        import torch

        ((name, read),) = windows[0].items()
        shape = 1, read.shape[2] // audio["step"], audio["noise_width"]
        scale = torch.randn(1)
        windows = [{name: read, NOISE_SCALE: scale.numpy(), NOISE: torch.randn(shape).numpy()}]
    return windows


def sound_windows(read: np.ndarray, mask: np.ndarray | None, audio: Mapping[str, Any]) -> list[SoundWindow]:
    """Windows of the bundle's size, with zeros behind the recording; or the recording itself, if it takes any size.

    Args:
        read: (parts, bins, frames), or (parts, frames, bins).
        mask: of the frames of the recording, (parts, frames).
        audio: the block `audio` of `metadata.json`.

    Raises:
        LanguageModelError: a part is longer than a window, and is not cut; the recording is too short; or there are
            several recordings of any size.
    """
    name, axis = read_by(audio), int(audio["axis"])
    if audio["frames"] is None:
        if len(read) != 1:
            raise LanguageModelError(f"the processor made {len(read)} recordings, and the bundle takes one")
        step, fewest = int(audio.get("step", 1)), int(audio.get(FEWEST_FRAMES, 1))
        if read.shape[axis] < fewest:
            raise LanguageModelError(
                f"the recording has {read.shape[axis]} frames, and the bundle takes {fewest} or more; put silence "
                "behind it"
            )
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
    if (heard := int(mask.sum())) < (fewest := int(audio.get(FEWEST_FRAMES, 1))):
        raise LanguageModelError(
            f"the recording has {heard} frames, and the bundle takes {fewest} or more; put silence behind it"
        )
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


def features_beside_tokens(
    run: Callable[[SoundWindow], Mapping[str, Any]], windows: list[SoundWindow], tokens: int
) -> np.ndarray:
    """The features of a recording, (1, tokens, width), for a model that hears a feature beside each token.

    Args:
        run: the function `audio`.
        windows: of the recording.
        tokens: how many the prompt has.

    Raises:
        LanguageModelError: the recording is over before the prompt.
    """
    features = np.concatenate([np.asarray(run(each)[HEARD]) for each in windows], 1)
    if tokens > features.shape[1]:
        raise LanguageModelError(f"the prompt has {tokens} tokens, and the recording is over after {features.shape[1]}")
    return features


def features_of_sound(
    run: Callable[[SoundWindow], Mapping[str, Any]], recordings: Sequence[list[SoundWindow]], wanted: Sequence[int],
    *, is_padded: bool = True,
) -> np.ndarray:  # fmt: skip
    """The features of recordings, (1, audio tokens, width): all of each window, and the first ones of a last window.

    Args:
        run: the function `audio`.
        recordings: the windows of each.
        wanted: how many audio tokens are at each place of the prompt; one recording may have several places.
        is_padded: whether silence may be behind a recording; otherwise all features are those of the recording.

    Raises:
        LanguageModelError: the windows have another number of tokens.
    """
    wanted = [sum(wanted)] if len(recordings) == 1 else wanted
    if len(recordings) != len(wanted):
        raise LanguageModelError(
            f"the prompt has audio tokens at {len(wanted)} places, and there are {len(recordings)} recordings; put the "
            "placeholder of the processor where each recording is to be"
        )
    return np.concatenate([_features(run, *each, is_padded) for each in zip(recordings, wanted, strict=True)], 1)


def _features(
    run: Callable[[SoundWindow], Mapping[str, Any]], windows: list[SoundWindow], wanted: int, is_padded: bool
) -> np.ndarray:  # fmt: skip
    made = np.concatenate([np.asarray(run(each)[HEARD]) for each in windows], 1)
    count = made.shape[1] // len(windows)
    if not made.shape[1] - (count if is_padded else 0) <= wanted <= made.shape[1]:
        raise LanguageModelError(
            f"the prompt has {wanted} audio tokens, and the {len(windows)} windows of the recording have {count} each; "
            "put the placeholder of the processor where the recording is to be, once"
        )
    return made[:, :wanted]

"""Whisper's tokens of times, by which a long recording is read in windows, as `generate` of transformers does."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from patcomp_models.errors import BundleError

_UNSUPPORTED = ("condition_on_prev_tokens", "no_speech_threshold")
"""Settings with which `generate` does more than what is here."""


class Times:
    """Which tokens of times may follow others, by the rule of transformers.

    Args:
        told: the generation configuration.
    """

    def __init__(self, told: Mapping[str, Any]):
        from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

        self.rule = WhisperTimeStampLogitsProcessor(SimpleNamespace(**told), begin_index=0)  # type: ignore[arg-type]
        self.timestamp_begin: int = told["no_timestamps_token_id"] + 1

    def allowed(self, made: list[int], logits: np.ndarray) -> np.ndarray:
        """The logits with forbidden next tokens masked."""
        import torch

        found: np.ndarray = self.rule(torch.tensor([made], dtype=torch.int64), torch.from_numpy(logits[None]))[
            0
        ].numpy()
        return found


def times_of(told: Mapping[str, Any], words: int, too_long: str) -> Times:
    """The rule of a model.

    Args:
        told: the generation configuration.
        words: how many tokens the model knows.
        too_long: how long the recording is, and what the bundle takes, for messages.

    Raises:
        BundleError: the model writes no times, or its configuration asks for more than this.
    """
    if told.get("no_timestamps_token_id") is None or told["no_timestamps_token_id"] + 1 >= words:
        raise BundleError(
            f"{too_long}; the model writes no times, by which it could be read in windows, so cut it into parts"
        )
    if asked := [name for name in _UNSUPPORTED if told.get(name)]:
        raise BundleError(
            f"{too_long}; the generation configuration has {asked[0]}, with which it cannot be read in windows, so cut "
            "it into parts"
        )
    return Times(told)


def ended(made: list[int], first: int, frames: int) -> tuple[list[int], int]:
    """The tokens of a window that are kept, and how many frames to go on.

    What is behind the last two times in a row is read again in the next window.

    Args:
        made: the tokens of a window.
        first: the token of the time 0.
        frames: of the spectrum of the window.
    """
    is_time = [token >= first for token in made]
    ends = [number for number in range(1, len(made)) if is_time[number - 1] and is_time[number]]
    if not ends or is_time[-2:] == [False, True]:  # nothing is said behind one time at the end
        return made, frames
    last = ends[-1] + 1
    return made[:last], 2 * (made[last - 2] - first)

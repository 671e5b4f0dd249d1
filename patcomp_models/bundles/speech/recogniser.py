"""The parts of a bundle that recognises speech, on the Core AI runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.emit.asset import Asset
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.errors import BundleError

AUDIO = "audio"
"""The function of an encoder that takes samples."""


@dataclass(frozen=True)
class Transcription:
    """What was recognised."""

    tokens: list[int]
    """Without those before the text and behind it; of CTC one for each frame."""
    text: str


@dataclass(frozen=True)
class Recogniser:
    """The parts of a bundle."""

    folder: Path
    metadata: Mapping[str, Any]
    parts: Mapping[str, Asset]
    interfaces: Mapping[str, Interfaces]
    extractor: Any
    tokenizer: Any
    options: Mapping[str, str]

    def too_long(self, samples: np.ndarray, most: int) -> str:
        """The message for a recording with more samples than the bundle takes."""
        seconds = [count / self.extractor.sampling_rate for count in (len(samples), most)]
        return f"the recording is {seconds[0]:.1f} s long, and the bundle takes {seconds[1]:.1f} s"

    def call(self, role: str, inputs: Mapping[str, Any], states: Any = None, function: str = "main") -> Any:
        """A call of a part, with numbers in the types that it takes."""
        told = self.interfaces[role].function(function).inputs
        typed = {name: np.asarray(value).astype(told[name].dtype) for name, value in inputs.items()}
        return self.parts[role].run(typed, states, function)

    def empty(self, role: str, capacity: int, function: str = "main") -> dict[str, np.ndarray]:
        """The states of a part before the first call, for one text; an open capacity becomes the given one."""
        states = self.interfaces[role].function(function).states
        return {
            name: np.zeros(
                [(1 if axis == 1 else capacity) if size is None else size for axis, size in enumerate(state.shape)],
                state.dtype,
            )
            for name, state in states.items()
        }

    def size(self, role: str, name: str, axis: int, function: str = "main") -> int | None:
        """A size of an input; None if it is open."""
        return self.interfaces[role].function(function).inputs[name].shape[axis]

    def takes_samples(self, role: str) -> bool:
        return AUDIO in self.interfaces[role].names

    def fitted(self, samples: np.ndarray, most: int | None) -> np.ndarray:
        """Samples with silence behind them, if a part takes one length only.

        Raises:
            BundleError: they are too long.
        """
        if most is None:
            return samples
        if len(samples) > most:
            raise BundleError(f"{self.too_long(samples, most)}; cut it into parts")
        return np.pad(samples, (0, most - len(samples)))

    def features(self, samples: np.ndarray, names: tuple[str, ...], **options: Any) -> dict[str, Any]:
        """What the extractor of transformers makes of samples; of these names."""
        rate = self.extractor.sampling_rate
        made = self.extractor(samples, sampling_rate=rate, return_tensors="np", **options)
        return {name: np.asarray(made[name]) for name in names if name in made}

"""FastSpeech 2 as two functions of tensors alone.

hidden, durations = durations(input_ids)
spectrogram = main(hidden)                # or waveform; each row of the first result as often as its duration says
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.fastspeech2_conformer import modeling_fastspeech2_conformer as of_transformers

from patcomp_models.tasks.replacing import replaced

_NAMES = {"speaker_id": "speaker_ids", "language_id": "lang_ids", "speaker_embedding": "speaker_embedding"}
"""How transformers calls further inputs."""


class Durations(nn.Module):
    """What each phoneme sounds like, (1, tokens, width), and its number of frames, (1, tokens).

    Args:
        model: `FastSpeech2ConformerModel`.
        further: the names of further inputs.
    """

    def __init__(self, model: Any, further: tuple[str, ...]):
        super().__init__()
        self.model, self.further = model, further

    def forward(
        self, input_ids: Tensor, first: Tensor | None = None, second: Tensor | None = None, third: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The two results.

        Args:
            input_ids: (1, tokens).
            first, second, third: the further inputs that the model has: the speaker and the language, (1,), and the
                embedding of the speaker, (1, width).
        """
        made = list[Tensor]()

        def regulator(hidden: Tensor, durations: Tensor, speed: float = 1.0) -> Tensor:
            slower = durations if speed == 1.0 else torch.round(durations.float() * speed).long()
            made.extend((hidden, torch.where(slower.sum() == 0, 1, slower)))
            return hidden

        given = {_NAMES[name]: value for name, value in zip(self.further, (first, second, third), strict=False)}
        with replaced(vars(of_transformers), length_regulator=regulator):
            self.model(input_ids, **given)
        hidden, durations = made
        return hidden, durations


class Spoken(nn.Module):
    """The spectrogram, (1, frames, bins), or the samples, (1, samples), of rows of frames, (1, frames, width)."""

    def __init__(self, model: Any, vocoder: Any):
        super().__init__()
        self.model, self.vocoder = model, vocoder

    def forward(self, hidden: Tensor) -> Tensor:
        decoded = self.model.decoder(hidden, None)[0]
        spectrogram: Tensor = self.model.speech_decoder_postnet(decoded)[1]
        return spectrogram if self.vocoder is None else self.vocoder(spectrogram)

"""SeamlessM4T from text to speech as functions of tensors alone.

crossKeys, crossValues = encode(input_ids)                     # text
logits, hidden = decode(input_ids, position_ids, crossKeys, crossValues)
crossKeys, crossValues = encode(hidden)                        # units
logits = decode(input_ids, position_ids, crossKeys, crossValues)
durations = durations(input_ids)                               # vocoder
waveform = main(input_ids, speaker_id, language_id)            # each unit as often as its duration says
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.language.contract import HIDDEN, LOGITS
from patcomp_models.tasks.sequences import DecodeTokens, EncodeInput


class DecodeText(DecodeTokens):
    """The logits of new tokens, (1, new, vocabulary), and what the head takes, (1, new, width)."""

    gives = (LOGITS, HIDDEN)

    def called(self, *given: Any, **positions: Tensor) -> tuple[Tensor, Tensor]:
        seen = list[Tensor]()
        watch = self.model.lm_head.register_forward_pre_hook(lambda head, arguments: seen.append(arguments[0]))
        try:
            logits = super().called(*given, **positions)
        finally:
            watch.remove()
        return logits, seen[-1]


class EncodeHidden(EncodeInput):
    """The keys and values of the hidden states of a text, (1, length, width)."""

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.crossed(self.model.get_encoder()(inputs_embeds=hidden), {})


class UnitDurations(nn.Module):
    """How many frames each unit has: (1, units) to (1, units)."""

    def __init__(self, vocoder: Any):
        super().__init__()
        self.vocoder = vocoder

    def forward(self, input_ids: Tensor) -> Tensor:
        logarithms = self.vocoder.dur_predictor(self.vocoder.unit_embedding(input_ids))
        return torch.clamp(torch.round(torch.expm1(logarithms)).int(), min=1)


class UnitSound(nn.Module):
    """The samples of the units of frames, (1, frames) to (1, samples)."""

    def __init__(self, vocoder: Any):
        super().__init__()
        self.vocoder = vocoder

    def forward(self, input_ids: Tensor, speaker_id: Tensor, language_id: Tensor) -> Tensor:
        units, frames = self.vocoder.unit_embedding(input_ids), input_ids.shape[1]
        speaker, language = self.vocoder.speaker_embedding(speaker_id), self.vocoder.language_embedding(language_id)
        left, right = (each.unsqueeze(1).expand(-1, frames, -1) for each in (language, speaker))
        made: Tensor = self.vocoder.hifi_gan(torch.cat([left, units, right], 2).transpose(1, 2))
        return made

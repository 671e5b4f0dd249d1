"""Encoders of sound that read more than the recording: the place of a window in it, or noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.hearing import NOISE, NOISE_SCALE, WINDOW
from patcomp_models.language.sound_encoders import Encoder


class PlacedEncoder(Encoder):
    """Music Flamingo: the features turn with the place of their window in the recording, `window`, (1,)."""

    further = (WINDOW,)

    def further_examples(self, tokens: int) -> tuple[Tensor, ...]:
        return (torch.ones(1, dtype=torch.int32),)

    def forward(self, read: Tensor, *others: Tensor) -> Tensor:
        inner, (mask, window) = self.model.model, others
        hidden = inner.audio_tower(
            read.to(self.model.dtype), input_features_mask=mask.long(), return_dict=True
        ).last_hidden_state
        count, step = hidden.shape[1], self.model.config.audio_frame_step * 4
        times = window[:, None] * count * step + torch.arange(count, dtype=torch.float32) * step
        cos, sin = inner.pos_emb(times, seq_len=count)
        turned, rest = hidden.float().split([cos.shape[-1], hidden.shape[-1] - cos.shape[-1]], -1)
        first, second = turned.unflatten(-1, (-1, 2)).unbind(-1)
        turned = turned * cos + torch.stack((-second, first), -1).flatten(-2) * sin
        return self.carried(inner.multi_modal_projector(torch.cat((turned, rest), -1).to(hidden.dtype)))


class NoisyEncoder(Encoder):
    """VibeVoice: what the acoustic encoder hears has noise, whose scale is drawn, too: `noise_scale`, (1,), and
    `noise`, (1, tokens, width), of the normal distribution."""

    further = (NOISE_SCALE, NOISE)

    def further_examples(self, tokens: int) -> tuple[Tensor, ...]:
        draw, width = torch.Generator().manual_seed(1), self.model.config.acoustic_tokenizer_encoder_config.hidden_size
        return torch.randn(1, generator=draw), torch.randn(1, tokens, width, generator=draw)

    def further_shapes(self, tokens: dict[int, Any]) -> tuple[dict[int, Any], ...]:
        return {}, tokens

    def forward(self, read: Tensor, *others: Tensor) -> Tensor:
        inner, (scale, noise), read = self.model.model, others, read.to(self.model.dtype)
        acoustic = inner.acoustic_tokenizer_encoder(read).latents
        semantic = inner.semantic_tokenizer_encoder(read).latents
        scale = self.model.config.acoustic_tokenizer_encoder_config.vae_std * scale.to(read.dtype)
        return self.carried(inner.multi_modal_projector(acoustic + scale * noise.to(read.dtype), semantic))

"""Encoders of sound that take more than a window of a recording: its place, or noise."""

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

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        inner = self.model.model
        hidden = inner.audio_tower(read, input_features_mask=mask, return_dict=True).last_hidden_state
        count, step = hidden.shape[1], self.model.config.audio_frame_step * 4
        times = further[0][:, None] * count * step + torch.arange(count, dtype=torch.float32) * step
        cos, sin = inner.pos_emb(times, seq_len=count)
        turned, rest = hidden.float().split([cos.shape[-1], hidden.shape[-1] - cos.shape[-1]], -1)
        first, second = turned.unflatten(-1, (-1, 2)).unbind(-1)
        turned = turned * cos + torch.stack((-second, first), -1).flatten(-2) * sin
        found: Tensor = inner.multi_modal_projector(torch.cat((turned, rest), -1).to(hidden.dtype))
        return found


class NoisyEncoder(Encoder):
    """VibeVoice: what the acoustic encoder hears has noise, whose scale is drawn, too: `noise_scale`, (1,), and
    `noise`, (1, tokens, width), of the normal distribution."""

    further = (NOISE_SCALE, NOISE)

    def further_examples(self, tokens: int) -> tuple[Tensor, ...]:
        draw, width = torch.Generator().manual_seed(1), self.model.config.acoustic_tokenizer_encoder_config.hidden_size
        return torch.randn(1, generator=draw), torch.randn(1, tokens, width, generator=draw)

    def further_shapes(self, tokens: dict[int, Any]) -> tuple[dict[int, Any], ...]:
        return {}, tokens

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        inner, (scale, noise) = self.model.model, further
        acoustic = inner.acoustic_tokenizer_encoder(read).latents
        semantic = inner.semantic_tokenizer_encoder(read).latents
        scale = self.model.config.acoustic_tokenizer_encoder_config.vae_std * scale.to(read.dtype)
        found: Tensor = inner.multi_modal_projector(acoustic + scale * noise.to(read.dtype), semantic)
        return found

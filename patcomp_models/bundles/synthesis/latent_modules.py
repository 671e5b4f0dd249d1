"""Models that write latents, one frame after the other, as functions of tensors alone.

    embeddings = text(input_ids)
    logits, hidden = main(inputs_embeds, position_ids)        # with the states keyCache and valueCache

Pocket TTS:

    latents = flow(latents, hidden, times)                    # a velocity, or without times the latents themselves
    embeddings = frames(latents)                              # what main reads of frames
    embeddings = voice(latents)                               # the same of a voice
    latents = scaled(latents)                                 # what the codec takes

VibeVoice:

    latents = denoise(latents, timestep, hidden)
    audio = decode(latents)                                   # with a state
    embeddings = hear(audio, latents)                         # with a state
    latents = encode(audio)
    embeddings = voice(latents)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from patcomp_models.bundles.hearing.functions import HearingDecoder
from patcomp_models.bundles.streaming.contexts import Contexts
from patcomp_models.bundles.streaming.streamed import Streamed
from patcomp_models.language.decoder import NewTokens
from patcomp_models.tasks.replacing import replaced


class SoundPart(nn.Module):
    """A function of a model of transformers.

    Args:
        model: of transformers.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model


# ---- Pocket TTS ----------------------------------------------------------------------------------------


class PocketText(SoundPart):
    """The embeddings of tokens, (1, q) to (1, q, width); the token that begins the sound has a latent's."""

    def forward(self, input_ids: Tensor) -> Tensor:
        inner = self.model.model
        first = inner.embed_audio_latents(inner.bos_latent)
        is_first = (input_ids == self.model.config.audio_bos_token_id).unsqueeze(-1)
        return torch.where(is_first, first, inner.embed_tokens(input_ids))


class PocketFrames(SoundPart):
    """The embeddings of latents, (1, q, latent width) to (1, q, width)."""

    def forward(self, latents: Tensor) -> Tensor:
        made: Tensor = self.model.model.embed_audio_latents(latents)
        return made


class PocketVoice(SoundPart):
    """The embeddings of the codec's latents of a voice, (1, q, latent width) to (1, q, width)."""

    def forward(self, latents: Tensor) -> Tensor:
        made: Tensor = self.model.model.audio_prompt_proj(latents)
        return made


class PocketFlow(SoundPart):
    """The velocity of latents (Boffi et al. 2025, arXiv:2505.18825), (1, latent width), from the hidden state,
    (1, width), and the times at which a step begins and ends, (1, 2); or the latents themselves, of a flow without
    times."""

    def forward(self, latents: Tensor, hidden: Tensor, times: Tensor | None = None) -> Tensor:
        given = None if times is None else list(times.split(1, 1))
        made: Tensor = self.model.flow_head(latents, hidden, times=given)
        return made


class PocketScaled(SoundPart):
    """The codec's latents of those that the flow makes, (1, frames, latent width)."""

    def forward(self, latents: Tensor) -> Tensor:
        made: Tensor = self.model.denormalize_latents(latents)
        return made


class PocketDecoder(HearingDecoder):
    """The language model, whose logits, (1, q, 1), say how probable it is that the sound ends."""

    def _logits(self, call: NewTokens) -> Tensor:
        inner = vars(self.model.model)
        with replaced(inner, get_token_mask=lambda ids, embedded, token: embedded.new_zeros(1, 1, 1).bool()):
            return super()._logits(call)


# ---- VibeVoice -----------------------------------------------------------------------------------------


class VoiceDenoise(SoundPart):
    """The diffusion head on one latent, (1, latent width), with the hidden states of the guided and of the free branch,
    (2, width), at a time of the schedule, (1,): the predictions of both, (2, latent width)."""

    def forward(self, latents: Tensor, timestep: Tensor, hidden: Tensor) -> Tensor:
        made: Tensor = self.model.model.diffusion_head(latents.expand(2, -1), timestep.expand(2), condition=hidden)
        return made


class VoiceEncode(SoundPart):
    """The mean of the latents of a recording, (1, 1, samples) to (1, frames, latent width)."""

    def forward(self, audio: Tensor) -> Tensor:
        made: Tensor = self.model.model.audio_tower.encode(audio, sample=False).latents
        return made


class Voice(SoundPart):
    """The embeddings of a voice, (1, frames, latent width) to (1, frames, width)."""

    def forward(self, latents: Tensor) -> Tensor:
        inner = self.model.model
        made: Tensor = inner.multi_modal_projector((latents + inner.latent_bias_factor) * inner.latent_scaling_factor)
        return made


class SpokenFrame(Streamed):
    """The samples of one latent, (1, 1, latent width) to (1, 1, samples)."""

    def __init__(self, model: Any):
        super().__init__("decoder", None)
        self.model = model

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        scaled = inputs[0] / self.model.latent_scaling_factor - self.model.latent_bias_factor
        made: Tensor = self.model.audio_tower.decode(scaled, padding_cache=contexts, use_cache=True).audio
        return made


class HeardFrame(Streamed):
    """The embedding of a frame that was spoken, from its samples, (1, 1, samples), and its latent, (1, 1, width)."""

    def __init__(self, model: Any):
        super().__init__("encoder", None)
        self.model = model

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        audio, latents = inputs
        heard = self.model.semantic_tokenizer_encoder(audio, padding_cache=contexts, use_cache=True).latents
        made: Tensor = self.model.multi_modal_projector(latents) + self.model.semantic_connector(heard)
        return made

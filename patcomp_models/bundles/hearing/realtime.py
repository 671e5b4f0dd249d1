"""Voxtral Realtime: a causal encoder, each of whose features is added to the embedding of a token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.bundles.hearing.encoders import Encoder


class RealtimeEncoder(Encoder):
    """Several frames of the encoder are the feature of a token."""

    def __init__(self, model: Any, row: Any):
        super().__init__(model, row)
        self.whole = model.model

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        found: Tensor = self.whole.get_audio_features(read, use_cache=False, return_dict=True).pooler_output
        return found


def without_sound(model: Any) -> Any:
    """The language model, which takes embeddings alone, for the delay of the configuration."""
    model.model = _Told(model.model)
    return model


class _Told(nn.Module):
    """The model without its head, which knows how many tokens the text comes behind the sound.

    Args:
        own: of transformers, which takes no embeddings without sound.
    """

    def __init__(self, own: Any):
        super().__init__()
        self.language_model = own.language_model
        delay = torch.full((1,), own.config.default_num_delay_tokens, dtype=own.dtype)
        self.register_buffer("condition", own.time_embedding(delay)[None])
        self.condition: Tensor

    def get_input_embeddings(self) -> Any:
        return self.language_model.get_input_embeddings()

    def forward(self, input_features: Any = None, encoder_inputs_embeds: Any = None, **given: Any) -> Any:
        kept = {name: each for name, each in given.items() if name not in _OF_SOUND}
        made = self.language_model(**kept, t_cond=self.condition)
        made.encoder_cache = made.padding_cache = None
        return made


_OF_SOUND = ("encoder_cache", "padding_cache", "num_delay_tokens")

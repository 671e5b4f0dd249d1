"""SpeechT5 of transformers as functions of tensors alone.

    crossKeys, crossValues = encode(input_ids)
    spectrum, stop = step(frame, dropout, speaker_embedding, position_ids, crossKeys, crossValues)
    spectrogram = postnet(spectrogram)
    waveform = vocoder(spectrogram)

`step` has the states keyCache and valueCache. A caller begins with a frame of zeros, calls it with the last frame of
each spectrum, and joins the spectra until the sum of `stop` is large enough.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from patcomp_models.language.conventions import CACHE
from patcomp_models.language.layers import StackedCacheLayer


class SpeechT5Encode(nn.Module):
    """The keys and values of a text for each layer of the decoder, (layers, 1, heads, tokens, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder, self.decoder = model.speecht5.encoder, model.speecht5.decoder.wrapped_decoder
        self.width = model.config.hidden_size

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        encoded = self.encoder(input_ids).last_hidden_state
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        first = encoded.new_zeros(1, 1, self.width)  # the export drops the ops that depend on it
        self.decoder(first, encoder_hidden_states=encoded, use_cache=True, **{CACHE: cache})
        layers: Any = cache.cross_attention_cache.layers
        return torch.stack([layer.keys for layer in layers]), torch.stack([layer.values for layer in layers])


class SpeechT5Step(nn.Module):
    """The frames behind one frame, and the probabilities that they are the last ones."""

    def __init__(self, model: Any):
        super().__init__()
        self.prenet, self.decoder = model.speecht5.decoder.prenet, model.speecht5.decoder.wrapped_decoder
        self.postnet, self.config = model.speech_decoder_postnet, model.config

    def forward(
        self, frame: Tensor, dropout: Tensor, speaker_embedding: Tensor, position_ids: Tensor, cross_keys: Tensor,
        cross_values: Tensor, key_cache: Tensor, value_cache: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(1, frames, bins) and (1, frames).

        Args:
            frame: (1, 1, bins).
            dropout: (layers, 1, units), ones with the model's probability, which is of the model at all times (Shen et
                al. 2018, arXiv:1712.05884), and zeros.
            speaker_embedding: (1, width).
            position_ids: (1, n), the positions of all steps so far.
            cross_keys, cross_values: (layers, 1, heads, tokens, width).
            key_cache, value_cache: (layers, 1, heads, capacity, width).
        """
        total = position_ids.shape[1]
        offset = total - 1
        torch._check(total <= key_cache.shape[3])
        rows = range(key_cache.shape[0])
        own = Cache(layers=[StackedCacheLayer(key_cache, value_cache, row, offset, total) for row in rows])
        cross: Any = Cache(layers=[DynamicLayer() for _ in rows])
        for row, layer in enumerate(cross.layers):
            layer.update(cross_keys[row], cross_values[row])
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(rows, True)
        hidden = self._embedded(frame, dropout, speaker_embedding, position_ids.narrow(1, offset, 1))
        encoded = hidden.new_zeros(1, cross_keys.shape[3], hidden.shape[2])  # only its presence is looked at
        made = self.decoder(
            hidden, encoder_hidden_states=encoded, use_cache=True, **{CACHE: cache}
        ).last_hidden_state  # fmt: skip
        spectrum = self.postnet.feat_out(made).view(1, self.config.reduction_factor, self.config.num_mel_bins)
        return spectrum, torch.sigmoid(self.postnet.prob_out(made)).squeeze(1)

    def _embedded(self, frame: Tensor, dropout: Tensor, speaker_embedding: Tensor, position: Tensor) -> Tensor:
        """What the prenet makes of a frame, with given dropout."""
        kept = 1 - self.config.speech_decoder_prenet_dropout
        for layer, mask in zip(self.prenet.layers, dropout, strict=True):
            frame = torch.where(mask == 1, functional.relu(layer(frame)), 0) / kept
        positions = self.prenet.encode_positions
        hidden = self.prenet.final_layer(frame) + positions.alpha * positions.pe[0][position]
        speaker = functional.normalize(speaker_embedding).unsqueeze(1)
        return functional.relu(self.prenet.speaker_embeds_layer(torch.cat([hidden, speaker], 2)))


class Postnet(nn.Module):
    """The spectrogram that is heard, (1, frames, bins), from the spectra of all steps."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model.speech_decoder_postnet

    def forward(self, spectrogram: Tensor) -> Tensor:
        made: Tensor = self.model.postnet(spectrogram)
        return made


class Vocoder(nn.Module):
    """HiFi-GAN: the samples of a spectrogram, (1, frames, bins) to (1, samples)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, spectrogram: Tensor) -> Tensor:
        made: Tensor = self.model(spectrogram)
        return made

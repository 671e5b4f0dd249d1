"""Models of transformers that recognise speech, as functions of tensors alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache

from patcomp_models.language.conventions import CACHE
from patcomp_models.language.layers import StackedCacheLayer


class SpeechEncoder(nn.Module):
    """What an encoder makes of features or samples: (1, ...) to (1, frames, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, read: Tensor) -> Tensor:
        found: Tensor = self.encoder(read).last_hidden_state
        return found


class SpeechDecoder(nn.Module):
    """The logits of the next token, with the keys and values of the earlier tokens as states.

    Apple's Swift package has no other states, so each call computes the keys and values of the encoder's output again.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.decoder, self.head = model.get_decoder(), model.get_output_embeddings()

    def form(self, encoder_hidden_states: Tensor) -> tuple[int, int, int]:
        """The layers, heads and widths of the keys that a call leaves in the cache."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        first = torch.zeros(1, 1, dtype=torch.int64)
        with torch.no_grad():
            self.decoder(input_ids=first, encoder_hidden_states=encoder_hidden_states, use_cache=True, **{CACHE: cache})
        layers: Any = cache.self_attention_cache.layers
        _, heads, _, width = layers[0].keys.shape
        return len(layers), heads, width

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, encoder_hidden_states: Tensor, key_cache: Tensor,
        value_cache: Tensor,
    ) -> Tensor:  # fmt: skip
        """(1, 1, vocabulary).

        Args:
            input_ids: (1, 1), the new token.
            position_ids: (1, n), the positions of all tokens.
            encoder_hidden_states: (1, frames, width).
            key_cache, value_cache: (layers, 1, heads, capacity, width of a head).
        """
        new, total = input_ids.shape[1], position_ids.shape[1]
        offset = total - new
        torch._check(offset >= 0)
        torch._check(total <= key_cache.shape[3])
        rows = range(key_cache.shape[0])
        own = Cache(layers=[StackedCacheLayer(key_cache, value_cache, row, offset, total) for row in rows])
        cache = EncoderDecoderCache(own, DynamicCache())
        cache.is_updated = dict.fromkeys(rows, False)
        hidden = self.decoder(
            input_ids=input_ids, position_ids=position_ids.narrow(1, offset, new),
            encoder_hidden_states=encoder_hidden_states, use_cache=True, **{CACHE: cache},
        ).last_hidden_state  # fmt: skip
        logits: Tensor = self.head(hidden)
        return logits


class TransducerEncoder(nn.Module):
    """The encoder of a transducer, (1, frames, mel bins) to (1, fewer frames, width of the decoder)."""

    def __init__(self, model: Any):
        super().__init__()
        self.encoder, self.projector = model.encoder, model.encoder_projector

    def forward(self, input_features: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.encoder(input_features=input_features, attention_mask=attention_mask).last_hidden_state
        found: Tensor = self.projector(hidden)
        return found


class TransducerStep(nn.Module):
    """One token of a transducer's prediction network, an LSTM whose states are inputs and outputs."""

    def __init__(self, model: Any):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, input_ids: Tensor, hidden_state: Tensor, cell_state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        embedded = self.decoder.embedding(input_ids)
        output, (hidden, cell) = self.decoder.lstm(embedded, (hidden_state, cell_state))
        return self.decoder.decoder_projector(output), hidden, cell


class TransducerJoint(nn.Module):
    """The logits for a frame and a token; a TDT model appends the logits of durations."""

    def __init__(self, model: Any):
        super().__init__()
        self.joint = model.joint

    def forward(self, decoder_hidden_states: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        found: Tensor = self.joint(decoder_hidden_states, encoder_hidden_states)
        return found


class FrameLogits(nn.Module):
    """The logits of each frame, of a model with a head for CTC."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, read: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        found: Tensor = self.model(read, attention_mask=attention_mask).logits
        return found

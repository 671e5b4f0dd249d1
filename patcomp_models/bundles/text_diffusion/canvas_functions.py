"""The functions of DiffusionGemma, whose states are the keys and values of the text.

    count = read(input_ids, position_ids, *states)
    logits = denoise(input_ids, position_ids, self_conditioning_logits, is_conditioned, *states)

`read` is the causal encoder: it appends the keys and values of new tokens. `denoise` attends to them and to the canvas
without a mask. It writes the keys and values of the canvas behind those of the text, where the next `read` writes its
own: they are of one call only.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.bundles.hearing.functions import decoder_entry
from patcomp_models.bundles.text_diffusion.canvas_form import (
    BEFORE,
    DENOISE_CANVAS,
    IS_CONDITIONED,
    READ_COUNT,
    READ_TEXT,
)
from patcomp_models.bundles.text_diffusion.denoisers import set_implementations
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.tasks.entries import Entry


class _Encoder(nn.Module):
    """The encoder as a decoder takes a language model, with nothing for logits but how many tokens it has read."""

    def __init__(self, model: Any):
        super().__init__()
        self.inner = model.model.encoder.language_model
        self.config, self.dtype = self.inner.config, self.inner.dtype

    def forward(self, input_ids: Tensor, position_ids: Any = None, cache: Any = None, use_cache: bool = True) -> Any:
        made = self.inner(input_ids=input_ids, position_ids=position_ids, cache=cache)
        return SimpleNamespace(cache=made.cache, logits=made.last_hidden_state)


class TextReader(Decoder):
    """The function `read`."""

    def __init__(self, model: Any):
        super().__init__(_Encoder(model))

    def forward(self, input_ids: Tensor, position_ids: Tensor, *states: Tensor) -> Tensor:
        super().forward(input_ids, position_ids, *states)
        return position_ids[:, -1].int() + 1


class CanvasDenoiser(Decoder):
    """The function `denoise`."""

    further = (BEFORE, IS_CONDITIONED)

    def __init__(self, model: Any):
        super().__init__(_Encoder(model))
        self.whole = model
        for layer in model.model.decoder.layers:
            layer.self_attn.append_to_cache = partial(_appended, layer.self_attn.layer_idx)

    def example(self, new: int) -> Tensor:
        return torch.arange(self.whole.config.canvas_length)[None] % self.model.config.vocab_size

    def further_examples(self, new: int) -> tuple[Tensor, ...]:
        shape = 1, self.whole.config.canvas_length, self.model.config.vocab_size
        logits = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(self.dtype)
        return logits, torch.ones(1, dtype=torch.bool)

    def _logits(self, call: NewTokens) -> Tensor:
        config = self.model.config
        # the layers with a window keep the keys of one token less
        near = torch.arange(call.total) >= call.offset - (config.sliding_window - 1)
        seen = near.expand(1, 1, call.new.shape[1], -1)
        before, is_conditioned = call.further
        made = self.whole(
            decoder_input_ids=call.new, cache=call.cache, decoder_position_ids=call.places,
            self_conditioning_logits=before, self_conditioning_mask=is_conditioned,
            decoder_attention_mask={"full_attention": None, "sliding_attention": seen},
        )  # fmt: skip
        logits: Tensor = made.logits
        return logits


def _appended(layer: int, cache: Any, keys: Tensor, values: Tensor) -> Any:
    """All keys and values of a layer, with those of the canvas."""
    return cache.update(keys, values, layer)


def canvas_entries(model: Any, context: int) -> list[Entry]:
    """The functions of a model for at most `context` tokens."""
    set_implementations(model)
    return [
        decoder_entry(TextReader(model).eval(), context, name=READ_TEXT, outputs=(READ_COUNT,)),
        decoder_entry(CanvasDenoiser(model).eval(), context, name=DENOISE_CANVAS, new=model.config.canvas_length),
    ]

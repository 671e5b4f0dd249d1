"""The function of a denoiser: the logits of all tokens of a text, each of which sees all others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp_models.bundles.hearing.functions import decoder_entry
from patcomp_models.checkpoints.loading import experts_of
from patcomp_models.language.contract import LOGITS, MAIN, TOKENS
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.tasks.entries import EXAMPLE_LENGTH, Entry
from patcomp_models.tasks.replacing import no_mask, replaced


class TextDenoiser(nn.Module):
    """From tokens, (1, n), to the logits of each place, (1, n, vocabulary).

    Args:
        model: a causal language model of transformers, which loses its mask.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        with _without_mask(self.model):
            made: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return made


class CachedDenoiser(Decoder):
    """From the tokens of a block to its logits, with the keys and values of the text before as states."""

    def _logits(self, call: NewTokens) -> Tensor:
        with _without_mask(self.model):
            return super()._logits(call)


@contextmanager
def _without_mask(model: Any) -> Iterator[None]:
    """While a model is called, each token sees all others, and those of the cache."""
    for part in model.modules():
        if hasattr(part, "is_causal"):
            part.is_causal = False
    with replaced(vars(sys.modules[type(model).__module__]), create_causal_mask=no_mask):
        yield


def set_implementations(model: Any) -> None:
    """Set the implementations of attention and of experts that are exported."""
    model.set_attn_implementation("sdpa")
    if experts := experts_of(model):
        model.set_experts_implementation(experts)


def denoiser_entry(model: Any, context: int) -> Entry:
    """The function of a model for texts of at most `context` tokens."""
    set_implementations(model)
    tokens = torch.arange(min(EXAMPLE_LENGTH, context))[None] % model.config.vocab_size
    length = Dim("length", min=2, max=context)
    return Entry(MAIN, TextDenoiser(model).eval(), {TOKENS: tokens}, (LOGITS,), {TOKENS: {1: length}})


def cached_entry(model: Any, context: int) -> Entry:
    """The function of a model that keeps the text before a block, for at most `context` tokens."""
    set_implementations(model)
    return decoder_entry(CachedDenoiser(model).eval(), context)

"""The function of a denoiser: the logits of all tokens of a text, each of which sees all others."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp_models.language.contract import LOGITS, MAIN, TOKENS
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
        for part in model.modules():
            if hasattr(part, "is_causal"):
                part.is_causal = False

    def forward(self, input_ids: Tensor) -> Tensor:
        with replaced(vars(sys.modules[type(self.model).__module__]), create_causal_mask=no_mask):
            made: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return made


def denoiser_entry(model: Any, context: int) -> Entry:
    """The function of a model for texts of at most `context` tokens."""
    model.set_attn_implementation("sdpa")
    tokens = torch.arange(min(EXAMPLE_LENGTH, context))[None] % model.config.vocab_size
    length = Dim("length", min=2, max=context)
    return Entry(MAIN, TextDenoiser(model).eval(), {TOKENS: tokens}, (LOGITS,), {TOKENS: {1: length}})

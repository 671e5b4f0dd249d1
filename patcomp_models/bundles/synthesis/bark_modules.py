"""Bark of transformers as functions of tensors alone.

    logits = prompt(text_ids, history_ids)                  # semantic
    logits = main(input_ids, position_ids)                  # semantic, coarse
    logits = codebook_2(codes)                              # fine, and so on for the codebooks behind it
    audio = main(codes)                                     # codec

The first two have the states keyCache and valueCache. The loops, and what is drawn, are the caller's, as `generate` of
transformers has them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache
from transformers.models.bark import modeling_bark

from patcomp_models.language.conventions import CACHE
from patcomp_models.language.layers import StackedCacheLayer
from patcomp_models.tasks.codecs import lengths_of_frames, paddings
from patcomp_models.tasks.replacing import no_mask, replaced


class Tokens(nn.Module):
    """The logits behind new tokens, of the semantic or the coarse model."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, position_ids: Tensor, key_cache: Tensor, value_cache: Tensor) -> Tensor:
        """(1, 1, vocabulary), of the last one.

        Args:
            input_ids: (1, q), the new tokens.
            position_ids: (1, n), the positions of all tokens.
            key_cache, value_cache: (layers, 1, heads, capacity, width).
        """
        new, total = input_ids.shape[1], position_ids.shape[1]
        offset = total - new
        torch._check(offset >= 0)
        torch._check(total <= key_cache.shape[3])
        layers = [StackedCacheLayer(key_cache, value_cache, row, offset, total) for row in range(key_cache.shape[0])]
        positions = position_ids.narrow(1, offset, new)
        return self.behind(layers, positions, total, input_ids=input_ids)

    def behind(self, layers: Any, positions: Tensor, total: Any, **inputs: Tensor) -> Tensor:
        """The logits behind the last input.

        Args:
            layers: of the cache.
            positions: (1, q), of the inputs.
            total: how many positions there are.
            inputs: tokens, or what they are embedded as.
        """
        seen = torch.arange(total, dtype=torch.int32) <= positions.unsqueeze(-1)
        mask = torch.where(seen, 0.0, torch.finfo(self.model.dtype).min).to(self.model.dtype).unsqueeze(1)
        with ExitStack() as stack:
            stack.enter_context(replaced(vars(modeling_bark), create_bidirectional_mask=lambda **options: mask))
            for block in self.model.layers:  # its own mask is cut from one of all positions
                stack.enter_context(replaced(vars(block.attn), is_causal=False))
            made: Tensor = self.model(
                position_ids=positions, use_cache=True, **{CACHE: Cache(layers=layers)}, **inputs
            ).logits
        return made.narrow(1, made.shape[1] - 1, 1)


class Prompt(Tokens):
    """The logits behind a text prompt; the tokens of the text are added to the tokens of a voice.

    Args:
        model: the semantic model.
        infer: the token behind the text.
    """

    def __init__(self, model: Any, infer: int):
        super().__init__(model)
        self.infer = infer

    def forward(self, text_ids: Tensor, history_ids: Tensor, key_cache: Tensor, value_cache: Tensor) -> Tensor:  # type: ignore[override]
        """(1, 1, vocabulary).

        Args:
            text_ids: (1, longest text), padded.
            history_ids: (1, longest text), padded.
            key_cache, value_cache: (layers, 1, heads, capacity, width).
        """
        embed, last = self.model.input_embeds_layer, torch.tensor([[self.infer]])
        total = text_ids.shape[1] + 1
        torch._check(total <= key_cache.shape[3])
        layers = [StackedCacheLayer(key_cache, value_cache, row, 0, total) for row in range(key_cache.shape[0])]
        embedded = torch.cat([embed(text_ids) + embed(history_ids), embed(last)], 1)
        return self.behind(layers, torch.arange(total, dtype=torch.int32)[None], total, inputs_embeds=embedded)


class Codebook(nn.Module):
    """The logits of one codebook from those in front of it: (1, frames, codebooks) to (1, frames, codes).

    Args:
        model: the fine model.
        number: of the codebook.
    """

    def __init__(self, model: Any, number: int):
        super().__init__()
        self.model, self.number = model, number

    def forward(self, codes: Tensor) -> Tensor:
        with replaced(vars(modeling_bark), create_bidirectional_mask=no_mask):
            made: Tensor = self.model(self.number, codes).logits
        return made


class BarkDecode(nn.Module):
    """The samples of codes: (1, codebooks, frames) to (1, samples)."""

    def __init__(self, model: Any):
        super().__init__()
        self.codec = model.codec_model
        self.paddings = paddings(self.codec.decoder)

    def forward(self, codes: Tensor) -> Tensor:
        with lengths_of_frames(self.paddings):
            made: Tensor = self.codec.decoder(self.codec.quantizer.decode(codes.transpose(0, 1))).squeeze(1)
        return made

"""The functions of a language model that hears: the encoder of sound, the table of embeddings, and the decoder.

    audio_features = audio(input_features, frame_mask), of a window, or of a recording of any length
    embeddings = embed(input_ids)
    logits = main(inputs_embeds, position_ids), with the states of a language model

The rows of audio tokens in `inputs_embeds` are those of `audio_features`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp_models.language.contract import EMBEDDED, EMBEDDINGS, HIDDEN, LOGITS, MAIN, POSITIONS, TOKENS
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.language.dynamic_form import NEW_TOKENS, TOTAL
from patcomp_models.language.hearing import EMBED, FRAME_MASK, HEARD, SOUND
from patcomp_models.language.sound_encoders import HearingRow
from patcomp_models.language.vision.tower import features_dtype
from patcomp_models.tasks.entries import Entry

_EXAMPLE_FRAMES = 452
"""Of a recording of any length: no multiple of a block of an encoder."""


class TokenTable(nn.Module):
    """From tokens, (1, q), to embeddings, (1, q, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.table, self.carried = model.get_input_embeddings(), features_dtype(model)

    def forward(self, input_ids: Tensor) -> Tensor:
        made: Tensor = self.table(input_ids)
        return made.to(self.carried)


class HearingDecoder(Decoder):
    """The language model, with its cache as arguments: `logits = decoder(inputs_embeds, position_ids, *states)`."""

    takes = EMBEDDED

    def example(self, new: int) -> Tensor:
        width = self.model.config.get_text_config().hidden_size
        return torch.randn(1, new, width, generator=torch.Generator().manual_seed(0)).to(features_dtype(self.model))

    def _logits(self, call: NewTokens) -> Tensor:
        return self.called(call, inputs_embeds=call.new.to(self.model.dtype))


def hearing_functions(model: Any, row: HearingRow, context: int) -> list[Entry]:
    """The functions of a model.

    Args:
        model: of transformers.
        row: of its type.
        context: the most tokens.
    """
    frames = row.frames(model.config) if row.frames else _EXAMPLE_FRAMES
    bins = row.bins(model.config)
    shape = (1, bins, frames) if row.axis == 2 else (1, frames, bins)
    read: dict[str, Tensor] = {row.read: torch.randn(shape, generator=torch.Generator().manual_seed(0))}
    lengths = {} if row.frames else {row.read: {row.axis: Dim("frames", min=2, max=2**20)}}
    if row.mask:
        read[FRAME_MASK] = (torch.arange(frames) < frames * 2 // 3)[None]
    new = Dim("new", min=1, max=context)
    tokens = torch.arange(NEW_TOKENS)[None] % model.config.get_text_config().vocab_size
    return [
        Entry(SOUND, row.encoder(model, row).eval(), read, (HEARD,), lengths, has_sums_of_sizes=not row.frames),
        Entry(EMBED, TokenTable(model).eval(), {TOKENS: tokens}, (EMBEDDINGS,), {TOKENS: {1: new}}),
        decoder_entry(HearingDecoder(model).eval(), context),
    ]


def decoder_entry(
    decoder: Decoder, context: int, *, name: str = MAIN, outputs: tuple[str, ...] | None = None, new: int | None = None
) -> Entry:
    """The function of a decoder, for at most `context` tokens.

    Args:
        decoder: the module.
        context: the most tokens.
        name: of the function.
        outputs: their names; by default the logits, and the hidden states if the decoder gives them.
        new: how many new tokens a call has; by default any number.
    """
    count = new or NEW_TOKENS
    total = Dim("total", min=new or 1, max=context)
    inputs = {decoder.takes: decoder.example(count), POSITIONS: torch.arange(count + TOTAL - NEW_TOKENS)[None]}
    inputs |= dict(zip(decoder.further, decoder.further_examples(count), strict=True))
    inputs |= dict(zip(decoder.states.names, decoder.states.zeros(2 * (count + TOTAL)), strict=True))
    capacities = {
        state.name: {3: Dim(f"capacity_of_{state.name}", min=(new or 0) + 1, max=2 * context)}
        for state in decoder.states.states
        if state.grows
    }
    is_open = {} if new else {decoder.takes: {1: Dim("new", min=1, max=context)}}
    return Entry(
        name, decoder, inputs, outputs or ((LOGITS, HIDDEN) if decoder.hidden else (LOGITS,)),
        {**is_open, POSITIONS: {1: total}, **capacities}, tuple(decoder.states.names), keeps_sizes=True,
    )  # fmt: skip

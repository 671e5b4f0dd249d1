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
from transformers.masking_utils import create_sliding_window_causal_mask

from patcomp_models.language.contract import EMBEDDED, EMBEDDINGS, HIDDEN, LOGITS, MAIN, POSITIONS, TOKENS
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.language.dynamic_form import NEW_TOKENS, TOTAL
from patcomp_models.language.hearing import EMBED, FRAME_MASK, HEARD, SOUND
from patcomp_models.language.sound_encoders import Encoder, HearingRow
from patcomp_models.language.vision.tower import features_dtype
from patcomp_models.tasks.entries import Entry


class TokenTable(nn.Module):
    """From tokens, (1, q), to embeddings, (1, q, width).

    The token of sound may be behind the last row of the table; it gets the first row, which the host replaces.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.table, self.carried = model.get_input_embeddings(), features_dtype(model)
        sound: int | None = getattr(model.config, "audio_token_id", None)
        self.outside = sound if sound is not None and sound >= self.table.num_embeddings else None

    def forward(self, input_ids: Tensor) -> Tensor:
        tokens = input_ids if self.outside is None else torch.where(input_ids == self.outside, 0, input_ids)
        made: Tensor = self.table(tokens)
        return made.to(self.carried)


class HearingDecoder(Decoder):
    """The language model, with its cache as arguments: `logits = decoder(inputs_embeds, position_ids, *states)`.

    Args:
        model: of transformers.
        is_window_of_cache: whether transformers keeps the sliding window by what its cache has, and not by its mask.
            Here the mask does it, because the states have all tokens.
        options: as for `Decoder`.
    """

    takes = EMBEDDED

    def __init__(self, model: Any, *, is_window_of_cache: bool = False, **options: Any):
        super().__init__(model, **options)
        if is_window_of_cache:
            self.rotary = {**self.rotary, "create_causal_mask": create_sliding_window_causal_mask}

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
    new = Dim("new", min=1, max=context)
    tokens = torch.arange(NEW_TOKENS)[None] % model.config.get_text_config().vocab_size
    sound = sound_entry(row.encoder(model, row).eval())  # before its parts are taken from the model
    language = row.language(model)
    return [
        sound,
        Entry(EMBED, TokenTable(language).eval(), {TOKENS: tokens}, (EMBEDDINGS,), {TOKENS: {1: new}}),
        decoder_entry(HearingDecoder(language, is_window_of_cache=row.is_window_of_cache).eval(), context),
    ]


def sound_entry(encoder: Encoder) -> Entry:
    """The function of an encoder of sound."""
    row, config = encoder.row, encoder.model.config
    step, read = row.step(config), row.example_read(config)
    frames = read.shape[row.axis]
    inputs: dict[str, Tensor] = {row.read: read}
    if row.mask:
        inputs[FRAME_MASK] = (torch.arange(frames) < frames * 2 // 3)[None]
    inputs |= dict(zip(encoder.further, encoder.further_examples(row.example), strict=True))
    if row.frames:
        return Entry(SOUND, encoder, inputs, (HEARD,))
    count = Dim("frames", min=row.fewest_of(config) // step, max=2**22 // step)
    sizes = {row.read: {row.axis: step * count if step > 1 else count}}
    sizes |= dict(zip(encoder.further, encoder.further_shapes({1: count}), strict=True))
    return Entry(SOUND, encoder, inputs, (HEARD,), sizes, has_sums_of_sizes=True)


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

"""The encoders of Nemotron's recognisers, which read a spectrum in chunks."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import Cache

from patcomp_models.bundles.streaming.contexts import Contexts
from patcomp_models.bundles.streaming.streamed import Streamed
from patcomp_models.language.conventions import CACHE


class SpectrumEncode(Streamed):
    """The frames of a chunk of a spectrum: (1, mel frames, bins) to (1, frames, width of the decoder).

    Args:
        model: Nemotron's transducer.
        lookahead: how many later frames attention sees; a chunk has one more.
        is_first: whether it is for the first chunk, in front of which convolutions see more zeros.
    """

    def __init__(self, model: Any, lookahead: int, *, is_first: bool):
        super().__init__("encoder", model.config.encoder_config.sliding_window, is_first)
        self.model, self.lookahead = model, lookahead

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        chunk, *prompts = inputs
        prompt = {"prompt_ids": prompts[0].long()} if prompts else {}
        made: Tensor = self.model.get_audio_features(
            input_features=chunk, padding_cache=contexts, use_cache=True, **{CACHE: past},
            num_lookahead_tokens=self.lookahead, output_attention_mask=False, **prompt,
        ).pooler_output  # fmt: skip
        return made

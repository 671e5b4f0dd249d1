"""Models whose codebooks are delayed against each other, as functions of tensors alone. A frame is a code of each.

    crossKeys, crossValues = encode(input_ids)                                # Dia, MusicGen
    logits = decode(codes, position_ids, crossKeys, crossValues)
    embeddings = text(input_ids)                                              # MusicGen Melody
    embeddings = melody(input_features)
    embeddings = codes(codes)
    logits = main(inputs_embeds, position_ids)
    logits = text(input_ids, position_ids)                                    # Higgs Audio, one cache for both
    logits = main(codes, position_ids)

`codes` are (1, new, codebooks), and `logits` (codebooks, codes), of the frame behind the last one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.bundles.hearing.functions import HearingDecoder
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.tasks.codecs import EncodecDecode
from patcomp_models.tasks.replacing import replaced
from patcomp_models.tasks.sequences import DecodeTokens


def frames(count: int, codebooks: int, codes: int) -> Tensor:
    """An example of frames, (1, count, codebooks)."""
    return (torch.arange(count * codebooks) % codes).view(1, count, codebooks)


class DecodeFrames(DecodeTokens):
    """The logits of the frame behind the last one, of a model with an encoder of text.

    Args:
        model: of transformers.
        codebooks: how many codes a frame has.
        codes: how many there are to choose from.
    """

    takes = "codes"

    def __init__(self, model: Any, codebooks: int, codes: int):
        super().__init__(model)
        self.codebooks, self.codes = codebooks, codes

    def example(self, texts: int, new: int) -> Tensor:
        return frames(new, self.codebooks, self.codes)

    def tokens(self, new: Tensor) -> Tensor:
        return new.squeeze(0).transpose(0, 1)

    def called(self, *given: Any, **positions: Tensor) -> Tensor:
        return super().called(*given, **positions)[:, -1]


class TextEmbeddings(nn.Module):
    """What MusicGen Melody reads of a text: (1, tokens) to (1, tokens, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.is_projected = model.text_encoder.config.hidden_size != model.decoder.config.hidden_size

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden: Tensor = self.model.text_encoder(input_ids=input_ids).last_hidden_state
        return self.model.enc_to_dec_proj(hidden) if self.is_projected else hidden


class MelodyEmbeddings(nn.Module):
    """What MusicGen Melody reads of a melody: (1, frames, pitch classes) to (1, frames, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.is_projected = model.config.num_chroma != model.decoder.config.hidden_size

    def forward(self, input_features: Tensor) -> Tensor:
        return self.model.audio_enc_to_dec_proj(input_features) if self.is_projected else input_features


class CodeEmbeddings(nn.Module):
    """What MusicGen Melody reads of frames: (1, new, codebooks) to (1, new, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.tables = model.decoder.model.decoder.embed_tokens

    def forward(self, codes: Tensor) -> Tensor:
        embedded = [table(codes[:, :, number]) for number, table in enumerate(self.tables)]
        return torch.stack(embedded).sum(0)


class MelodyDecoder(HearingDecoder):
    """MusicGen Melody's decoder, which reads a melody and a text in front of the frames."""

    def first_inputs(self) -> dict[str, Tensor]:
        return {"inputs_embeds": self.example(4)}

    def _logits(self, call: NewTokens) -> Tensor:
        return super()._logits(call)[:, -1]


class HiggsDecoder(Decoder):
    """Higgs Audio on tokens of a text, (1, new).

    Each layer has two feed-forward networks, one for texts and one for frames. A call has only one of the two, so that
    no network is chosen by data.
    """

    def _logits(self, call: NewTokens) -> Tensor:
        with ExitStack() as stack:
            for layer in self.model.model.layers:
                of_text = {"audio_mlp": layer.mlp, "audio_input_layernorm": layer.input_layernorm,
                           "audio_post_attention_layernorm": layer.post_attention_layernorm}  # fmt: skip
                stack.enter_context(replaced(vars(layer)["_modules"], **of_text))
            return self._of_frames(call, inputs_embeds=self.model.model.embed_tokens(call.new))

    def _of_frames(self, call: NewTokens, **given: Tensor) -> Tensor:
        config, inner = self.model.config, vars(self.model.model)
        with replaced(inner, get_placeholder_mask=lambda *arguments: None):
            logits = self.called(call, **given)
        return logits[0, -1].view(config.num_codebooks, config.codebook_size)


class HiggsFrames(HiggsDecoder):
    """Higgs Audio on frames, (1, new, codebooks)."""

    takes = "codes"

    def example(self, new: int) -> Tensor:
        return frames(new, self.model.config.num_codebooks, self.model.config.codebook_size)

    def _logits(self, call: NewTokens) -> Tensor:
        return self._of_frames(call, audio_input_ids=call.new)


class StereoDecode(nn.Module):
    """Codes of the left and the right channel in turn, (1, codebooks, frames), to samples, (1, 2, samples)."""

    def __init__(self, model: Any):
        super().__init__()
        self.decode = EncodecDecode(model)

    def forward(self, codes: Tensor) -> Tensor:
        return torch.cat([self.decode(codes[:, side::2]) for side in (0, 1)], 1)

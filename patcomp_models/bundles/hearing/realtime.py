"""Models that hear beside each token: each feature of a causal encoder is added to the embedding of a token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp_models.bundles.streaming.contexts import Contexts, causal_convolutions, convolutions_with
from patcomp_models.errors import BundleError
from patcomp_models.language.sound_encoders import Encoder
from patcomp_models.language.vision.tower import features_dtype


class RealtimeEncoder(Encoder):
    """Voxtral Realtime: several frames of the encoder are the feature of a token."""

    def __init__(self, model: Any, row: Any):
        super().__init__(model, row)
        self.whole = model.model

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        found: Tensor = self.whole.get_audio_features(read, use_cache=False, return_dict=True).pooler_output
        return found


class CodecEncoder(Encoder):
    """Kyutai's recogniser: the embeddings of the codes of a frame, behind those of the begin of the recording.

    The codec is Mimi. It reads the recording as one chunk, with the paddings of its stream. If generation_config.json
    has audio_window_size, `generate` of transformers reads one frame after the other, and the first frame twice; it has
    the attention of the codec begin anew with each, unless codec_use_cache is there, too.

    Raises:
        BundleError: audio_window_size is another number than 1.
    """

    def __init__(self, model: Any, row: Any):
        super().__init__(model, row)
        self.table, self.codec = model.model.embed_tokens, model.codec_model
        self.convolutions = causal_convolutions(self.codec.encoder)
        self.window = getattr(model.generation_config, "audio_window_size", None)
        if self.window not in (None, 1):
            raise BundleError(f"audio_window_size of generation_config.json is {self.window!r}; 1 is known, or none")
        if self.window and not self.codec.generation_config.use_cache:
            encoder, codec = self.codec.encoder, model.config.codec_config
            size = round(codec.encodec_frame_rate / codec.frame_rate)
            encoder.encoder_transformer = _OfFrames(encoder.encoder_transformer, size)

    def forward(self, read: Tensor, *others: Tensor) -> Tensor:
        return self.features(read, None).to(features_dtype(self.model))  # the codec is of float32

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        config, contexts = self.model.config, Contexts()
        if self.window:
            size = config.frame_size
            read = torch.cat([read.narrow(2, 0, size), read.narrow(2, 0, read.shape[2] - size)], 2)
        with convolutions_with(contexts, self.convolutions):
            codes = self.codec.encode(
                read, num_quantizers=config.num_codebooks, use_streaming=True, padding_cache=contexts
            ).audio_codes
        codes = functional.pad(codes, (1, 0), value=config.audio_bos_token_id).transpose(1, 2)
        rows = self.table.embed_tokens
        places = torch.where(codes == rows.padding_idx, codes, codes + self.table.audio_tokens_offsets[1:])
        found: Tensor = rows(places).sum(2)
        return found


class _OfFrames(nn.Module):
    """A transformer that reads each frame for itself.

    Args:
        own: of the codec.
        size: of a frame, in tokens.
    """

    def __init__(self, own: Any, size: int):
        super().__init__()
        self.own, self.size = own, size

    def forward(self, hidden_states: Tensor, **options: Any) -> Any:
        made = self.own(hidden_states.reshape(-1, self.size, hidden_states.shape[2]), use_cache=False)
        made.last_hidden_state = made.last_hidden_state.reshape(1, -1, hidden_states.shape[2])
        return made


def with_plain_table(model: Any) -> Any:
    """The language model of Kyutai's recogniser, whose table takes tokens of text alone."""
    model.model.embed_tokens = model.model.embed_tokens.embed_tokens
    return model


def without_sound(model: Any) -> Any:
    """Voxtral Realtime's language model, which takes embeddings alone, for the delay of the configuration."""
    model.model = _Told(model.model)
    return model


class _Told(nn.Module):
    """The model without its head, which knows how many tokens the text comes behind the sound.

    Args:
        own: of transformers, which takes no embeddings without sound.
    """

    def __init__(self, own: Any):
        super().__init__()
        self.language_model = own.language_model
        delay = torch.full((1,), own.config.default_num_delay_tokens, dtype=own.dtype)
        self.register_buffer("condition", own.time_embedding(delay)[None])
        self.condition: Tensor

    def get_input_embeddings(self) -> Any:
        return self.language_model.get_input_embeddings()

    def forward(self, input_features: Any = None, encoder_inputs_embeds: Any = None, **given: Any) -> Any:
        kept = {name: each for name, each in given.items() if name not in _OF_SOUND}
        made = self.language_model(**kept, t_cond=self.condition)
        made.encoder_cache = made.padding_cache = None
        return made


_OF_SOUND = ("encoder_cache", "padding_cache", "num_delay_tokens")

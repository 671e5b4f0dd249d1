"""The encoders of sound of language models: features of a window of a recording, in the place of tokens.

The encoder is the model's own code up to its projector. What the model does behind it, picking the rows of the
recording from those of padding, a host does: they are the first ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.hearing import FEWEST_FRAMES, NOISE, READ
from patcomp_models.language.vision.tower import exchanged, features_dtype


class _ReachedError(Exception):
    """The model has come to its projector."""


class _Projector(nn.Module):
    """In the place of a projector: it keeps what the projector is called with, and ends the call of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.given: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}

    def forward(self, *given: Any, **options: Any) -> Tensor:
        self.given, self.options = given, options
        raise _ReachedError


class Encoder(nn.Module):
    """The features of a window, (1, tokens, width), by the model's own code up to its projector.

    Args:
        model: of transformers.
        row: of its type.

    Called with what the processor makes of the recording, (1, bins, frames) or (1, frames, bins) of float32, and with
    the mask of frames, (1, frames) of bool, if the model takes one. The features are of float16 if the model computes
    in half precision.
    """

    def __init__(self, model: Any, row: HearingRow):
        super().__init__()
        self.model, self.row = model, row

    further: ClassVar[tuple[str, ...]] = ()
    """The names of further inputs, which come last."""

    def further_examples(self, tokens: int) -> tuple[Tensor, ...]:
        """Further inputs for a window with some tokens."""
        return ()

    def further_shapes(self, tokens: dict[int, Any]) -> tuple[dict[int, Any], ...]:
        """The open sizes of the further inputs.

        Args:
            tokens: those of an input with a row for each token.
        """
        return ({},) * len(self.further)

    def forward(self, read: Tensor, *others: Tensor) -> Tensor:
        return self.carried(self.features(read.to(self.model.dtype), others[0].long() if self.row.mask else None))

    def carried(self, found: Tensor) -> Tensor:
        """Features in the form of the output."""
        return found.reshape(1, -1, found.shape[-1]).to(features_dtype(self.model))

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        """The features of a window."""
        inner, place, seen = self.model.model, self.row.projector, _Projector()
        projector = getattr(inner, place)
        tokens = torch.full((1, 2), self.model.config.audio_token_id)
        setattr(inner, place, seen)
        try:
            inner.forward(input_ids=tokens, **{self.row.read: read}, **({} if mask is None else {self.row.mask: mask}))
        except _ReachedError:
            found: Tensor = projector(*seen.given, **seen.options)
            return found
        finally:
            setattr(inner, place, projector)
        raise LanguageModelError(f"{type(self.model).__name__} of this version of transformers has another projector")


class MergedEncoder(Encoder):
    """MOSS: the projector takes several frames of the encoder as one."""

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        made = self.model.model.audio_tower(read, return_dict=True).last_hidden_state
        merged = made.reshape(-1, self.model.config.audio_merge_size * made.shape[-1])
        found: Tensor = self.model.model.multi_modal_projector(merged)
        return found


class ChunkEncoder(Encoder):
    """Qwen3-ASR: convolutions of each second, and attention inside of windows, of which this is one."""

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        tower = self.model.model.audio_tower
        length = 2 * tower.n_window
        assert mask is not None
        made = read.reshape(1, read.shape[1], -1, length).permute(2, 0, 1, 3)
        for convolution in (tower.conv2d1, tower.conv2d2, tower.conv2d3):
            made = nn.functional.gelu(convolution(made))
        made = tower.conv_out(made.permute(0, 3, 1, 2).flatten(2))
        made = made + tower.positional_embedding.positional_embedding[: made.shape[1]].to(made.dtype)
        counts = mask.reshape(-1, length).sum(1)
        for _ in range(3):
            counts = torch.where(counts > 0, (counts - 1) // 2 + 1, 0)
        heard = (torch.arange(made.shape[1]) < counts[:, None]).reshape(1, 1, 1, -1)
        return self.projected(tower.ln_post(_through_layers(tower, made.flatten(0, 1), heard)))

    def projected(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.model.model.multi_modal_projector(hidden)
        return found


class OmniChunkEncoder(ChunkEncoder):
    """Qwen3-Omni: as Qwen3-ASR, with zeros behind the recording."""

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        return super().features(read * mask[:, None].to(read.dtype), mask)

    def projected(self, hidden: Tensor) -> Tensor:
        tower = self.model.model.audio_tower
        found: Tensor = tower.proj2(tower.act(tower.proj1(hidden)))
        return found


class PooledEncoder(Encoder):
    """Qwen2.5-Omni: attention inside of windows of two seconds, of which this is one; two frames are a token."""

    def __init__(self, model: Any, row: HearingRow):
        super().__init__(model, row)
        if (length := model.model.audio_tower.n_window) % 2:
            raise LanguageModelError(
                f"n_window of the encoder of sound is {length}; a token of an odd one has frames of two windows, which "
                "is not supported"
            )

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        tower = self.model.model.audio_tower
        assert mask is not None
        kept = mask[:, None].to(read.dtype)
        made = nn.functional.gelu(tower.conv1(read * kept)) * kept
        made = nn.functional.gelu(tower.conv2(made))[0].transpose(0, 1)
        made = made + tower.positional_embedding.positional_embedding[: len(made)].to(made.dtype)
        heard = (torch.arange(len(made)) < (mask.sum(1) + 1) // 2).reshape(1, 1, 1, -1)
        first, second = _through_layers(tower, made, heard).unflatten(0, (-1, 2)).unbind(1)
        found: Tensor = tower.proj(tower.ln_post((first + second) / 2))
        return found


class MaskedEncoder(Encoder):
    """Gemma 4: the encoder takes the mask of frames, and features of frames without sound are behind the others."""

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        found: Tensor = self.model.model.get_audio_features(read, mask.bool(), return_dict=True).pooler_output
        return found


class FilledEncoder(Encoder):
    """Gemma 3n: each recording has the same number of tokens, of which those behind it are the padding's.

    A frame that the extractor made is never of zeros alone, and those behind are. The model has no frames there, so
    that its second convolution reads zeros.
    """

    def features(self, read: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        inner = self.model.model
        second = inner.audio_tower.subsample_conv_projection.conv_1
        step = inner.audio_tower.config.sscp_conv_stride_size[0][0]
        is_frame = (read != 0).any(-1)[:, None, ::step, None]

        def cut(hidden: Tensor) -> Tensor:
            made: Tensor = type(second).forward(second, hidden * is_frame)
            return made

        with exchanged(second, "forward", cut):
            found = inner.get_audio_features(read, ~mask.bool(), return_dict=True)
        filling = inner.embed_audio(input_ids=torch.tensor([[inner.vocab_size - 1]]))
        made: Tensor = torch.where(found.audio_mel_mask[..., None], filling, found.pooler_output)
        return made


def _through_layers(tower: Any, hidden: Tensor, heard: Tensor) -> Tensor:
    """The output of the layers of an encoder, (tokens, width), whose tokens see those of the recording."""
    for layer in tower.layers:
        attended = partial(_attended, layer.self_attn, heard)
        with exchanged(layer.self_attn, "forward", attended):
            hidden = layer(hidden, cu_seqlens=None)[0]
    return hidden


def _attended(attention: Any, heard: Tensor, hidden_states: Tensor, **_: Any) -> Tensor:
    """The output of a layer's attention to the tokens of the recording, (tokens, width)."""
    hidden = hidden_states
    query, key, value = (
        part(hidden).reshape(1, len(hidden), attention.num_heads, -1).transpose(1, 2)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    made = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=heard, scale=attention.scaling)
    found: Tensor = attention.out_proj(made.transpose(1, 2).reshape(len(hidden), -1))
    return found


@dataclass(frozen=True)
class HearingRow:
    """What is particular to a type.

    Attributes:
        mask: the argument for the mask of frames; empty for a model without.
        frames: how many frames a window has, from the configuration; None if a recording is one window of any length.
        axis: of the frames in what the encoder reads.
        bins: of the features of a frame, from the configuration.
        is_cut: whether a longer recording is several windows.
        fewest: how many frames a recording must have, from the configuration.
        projector: the module whose output are the features.
        encoder: its class.
        read: what the encoder reads, by the name that it has in the processor's result.
        step: the number of frames is a multiple of it, of which each is a token; 1 for any number.
        example: how many steps an example of any length has.
        is_added: whether the features are added to the embeddings of all tokens, instead of taking the place of some.
        language: the model without its encoder.
        is_window_of_cache: whether the cache of transformers alone keeps the sliding window, and its mask does not.
    """

    mask: str = "input_features_mask"
    frames: Callable[[Any], int] | None = lambda config: 2 * config.audio_config.max_source_positions
    axis: int = 2
    bins: Callable[[Any], int] = lambda config: config.audio_config.num_mel_bins
    is_cut: bool = True
    fewest: Callable[[Any], int] = lambda config: 1
    projector: str = "multi_modal_projector"
    encoder: type[Encoder] = Encoder
    read: str = READ
    step: Callable[[Any], int] = lambda config: 1
    example: int = 452
    is_added: bool = False
    language: Callable[[Any], Any] = lambda model: model
    is_window_of_cache: bool = False

    def example_read(self, config: Any) -> Tensor:
        """An example of what the encoder reads: a whole window, or a recording of `example` steps."""
        frames, bins = self.frames(config) if self.frames else self.example * self.step(config), self.bins(config)
        shape = (1, bins, frames) if self.axis == 2 else (1, frames, bins)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))

    def fewest_of(self, config: Any) -> int:
        """How many frames a recording must have; of any length two steps, because an export takes one for a number."""
        return self.fewest(config) if self.frames else max(self.fewest(config), 2 * self.step(config))

    def keys(self, config: Any, sample_rate: int | None) -> dict[str, Any]:
        """The block `audio` of `metadata.json`."""
        rate = {} if sample_rate is None else {"sample_rate": sample_rate}
        told: dict[str, Any] = {"step": self.step(config)} if self.frames is None else {}
        if further := self.encoder.further:
            told["further"] = [*further]
        if NOISE in further:
            told["noise_width"] = config.acoustic_tokenizer_encoder_config.hidden_size
        if self.is_added:
            told["is_added"] = True
        if hasattr(config, "default_num_delay_tokens"):
            told["delay"] = config.default_num_delay_tokens
        return {
            "audio_token_id": getattr(config, "audio_token_id", None), "read": self.read,
            "frames": self.frames(config) if self.frames else None, "axis": self.axis, "mask": self.mask,
            "is_cut": self.is_cut, FEWEST_FRAMES: self.fewest_of(config), **told, **rate,
        }  # fmt: skip

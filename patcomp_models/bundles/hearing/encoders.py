"""The encoders of sound of language models: features of a window of a recording, in the place of tokens.

The encoder is the model's own code up to its projector. What the model does behind it, picking the rows of the
recording from those of padding, a host does: they are the first ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.hearing import NOISE, NOISE_SCALE, WINDOW
from patcomp_models.language.vision.tower import features_dtype

if TYPE_CHECKING:
    from patcomp_models.bundles.hearing.rows import HearingRow


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
    """The names of further inputs."""

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
        mask, further = (others[0].long(), others[1:]) if self.row.mask else (None, others)
        found = self.features(read.to(self.model.dtype), mask, *further)
        return found.reshape(1, -1, found.shape[-1]).to(features_dtype(self.model))

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
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

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        made = self.model.model.audio_tower(read, return_dict=True).last_hidden_state
        merged = made.reshape(-1, self.model.config.audio_merge_size * made.shape[-1])
        found: Tensor = self.model.model.multi_modal_projector(merged)
        return found


class PlacedEncoder(Encoder):
    """Music Flamingo: the features turn with the place of their window in the recording, `window`, (1,)."""

    further = (WINDOW,)

    def further_examples(self, tokens: int) -> tuple[Tensor, ...]:
        return (torch.ones(1, dtype=torch.int32),)

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        inner = self.model.model
        hidden = inner.audio_tower(read, input_features_mask=mask, return_dict=True).last_hidden_state
        count, step = hidden.shape[1], self.model.config.audio_frame_step * 4
        times = further[0][:, None] * count * step + torch.arange(count, dtype=torch.float32) * step
        cos, sin = inner.pos_emb(times, seq_len=count)
        turned, rest = hidden.float().split([cos.shape[-1], hidden.shape[-1] - cos.shape[-1]], -1)
        first, second = turned.unflatten(-1, (-1, 2)).unbind(-1)
        turned = turned * cos + torch.stack((-second, first), -1).flatten(-2) * sin
        found: Tensor = inner.multi_modal_projector(torch.cat((turned, rest), -1).to(hidden.dtype))
        return found


class NoisyEncoder(Encoder):
    """VibeVoice: what the acoustic encoder hears has noise, whose scale is drawn, too: `noise_scale`, (1,), and
    `noise`, (1, tokens, width), of the normal distribution."""

    further = (NOISE_SCALE, NOISE)

    def further_examples(self, tokens: int) -> tuple[Tensor, ...]:
        draw, width = torch.Generator().manual_seed(1), self.model.config.acoustic_tokenizer_encoder_config.hidden_size
        return torch.randn(1, generator=draw), torch.randn(1, tokens, width, generator=draw)

    def further_shapes(self, tokens: dict[int, Any]) -> tuple[dict[int, Any], ...]:
        return {}, tokens

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        inner, (scale, noise) = self.model.model, further
        acoustic = inner.acoustic_tokenizer_encoder(read).latents
        semantic = inner.semantic_tokenizer_encoder(read).latents
        scale = self.model.config.acoustic_tokenizer_encoder_config.vae_std * scale.to(read.dtype)
        found: Tensor = inner.multi_modal_projector(acoustic + scale * noise.to(read.dtype), semantic)
        return found


class ChunkEncoder(Encoder):
    """Qwen3-ASR: convolutions of each second, and attention inside of windows, of which this is one."""

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
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
        hidden = made.flatten(0, 1)
        for layer in tower.layers:
            hidden = hidden + _attended(layer.self_attn, layer.self_attn_layer_norm(hidden), heard)
            hidden = hidden + layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden))))
        found: Tensor = self.model.model.multi_modal_projector(tower.ln_post(hidden))
        return found


def _attended(attention: Any, hidden: Tensor, heard: Tensor) -> Tensor:
    """The output of a layer's attention to the tokens of the recording, (tokens, width)."""
    query, key, value = (
        part(hidden).reshape(1, len(hidden), attention.num_heads, -1).transpose(1, 2)
        for part in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    made = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=heard, scale=attention.scaling)
    found: Tensor = attention.out_proj(made.transpose(1, 2).reshape(len(hidden), -1))
    return found

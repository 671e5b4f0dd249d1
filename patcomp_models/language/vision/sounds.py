"""The function `audio` of models of images and sound: an encoder of sound whose rows are as wide as those of images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp.pytorch import FakeTensorMode
from patcomp_models.language.hearing import FRAME_MASK, READ
from patcomp_models.language.sound_encoders import (
    FilledEncoder,
    HearingRow,
    MaskedEncoder,
    OmniChunkEncoder,
    PooledEncoder,
)
from patcomp_models.language.vision.tower import Tower

_HALF_A_MINUTE, _MELS = 3000, 128
"""The most frames of Gemma 4, of 10 ms each, and the features of a frame."""
_TEN_SECONDS = 250
"""The frames of a window of Gemma 4 without a tower, whose tokens do not see each other: 40 ms each."""


def _frames_of_gemma3n(config: Any) -> int:
    audio = config.audio_config
    steps = math.prod(stride[0] for stride in audio.sscp_conv_stride_size) * audio.conf_reduction_factor
    return int(config.audio_soft_tokens_per_image * steps)


SOUNDS: Mapping[str, HearingRow] = {
    "qwen2_5_omni_thinker": HearingRow(
        "feature_attention_mask", frames=lambda config: 2 * config.audio_config.n_window, encoder=PooledEncoder
    ),
    "qwen3_omni_moe_thinker": HearingRow(
        "feature_attention_mask", frames=lambda config: config.audio_config.n_window_infer, encoder=OmniChunkEncoder,
        fewest=lambda config: 2 * config.audio_config.n_window,
    ),
    "gemma3n": HearingRow(
        frames=_frames_of_gemma3n, axis=1, bins=lambda config: config.audio_config.input_feat_size, is_cut=False,
        encoder=FilledEncoder,
    ),
    "gemma4": HearingRow(
        frames=lambda config: _HALF_A_MINUTE, axis=1, bins=lambda config: _MELS, is_cut=False, encoder=MaskedEncoder
    ),
    "gemma4_unified": HearingRow(
        frames=lambda config: _TEN_SECONDS, axis=1, bins=lambda config: config.audio_config.audio_embed_dim,
        encoder=MaskedEncoder,
    ),
}  # fmt: skip
"""The encoders of sound of models that also take images, by `model_type`."""


class SoundEncoder(nn.Module):
    """The part of a vision-language model that makes features of a window of sound.

    Args:
        tower: of the model's images.

    Called as an `Encoder`, it returns (1, tokens, width): what rides behind the embedding of the token of sound is
    behind its features, and zeros are in the place of what rides behind those of an image alone.
    """

    of_sound: Tensor
    """(1, width), what `Tower.embedded` gives for the token of sound beside its embedding."""

    def __init__(self, tower: Tower):
        super().__init__()
        self.tower, self.model = tower, tower.model
        self.row = SOUNDS[self.model.config.model_type]
        self.encoder = self.row.encoder(self.model, self.row)
        with torch.no_grad():
            _, *behind = tower.embedded(torch.tensor([[self.token]]))
        self.register_buffer("of_sound", torch.cat([each[0] for each in behind] or [torch.zeros(1, 0)], -1))

    def forward(self, input_features: Tensor, frame_mask: Tensor | None = None) -> Tensor:
        tower = self.tower
        made = self.encoder(input_features, frame_mask)[0]
        made = torch.cat([made, self.of_sound.to(made.dtype).expand(len(made), -1)], -1)
        return nn.functional.pad(made, (0, tower.hidden + tower.extra - made.shape[-1]))[None]

    @property
    def token(self) -> int:
        return int(self.model.config.audio_token_id)

    @cached_property
    def tokens(self) -> list[int]:
        """The tokens of the example."""
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            return [self.token] * self(*self.window).shape[1]

    @property
    def example(self) -> dict[str, np.ndarray]:
        """The inputs by name of the example."""
        return {name: each.numpy() for name, each in zip((READ, FRAME_MASK), self.window, strict=False)}

    @cached_property
    def window(self) -> tuple[Tensor, ...]:
        """An example of the inputs: a window that is full of sound."""
        row = self.row
        read = row.example_read(self.model.config)
        return (read, torch.ones(1, read.shape[row.axis], dtype=torch.bool)) if row.mask else (read,)

    def given(self) -> dict[str, Tensor]:
        """The arguments with which the model itself takes the example."""
        read, *mask = self.window
        return {READ: read.to(self.model.dtype), **({self.row.mask: mask[0]} if mask else {})}


def sound_of(tower: Tower) -> SoundEncoder | None:
    """The encoder of sound of a model that takes images; None if it has none."""
    config = tower.model.config
    has_sound = config.model_type in SOUNDS and config.audio_config is not None
    return SoundEncoder(tower) if has_sound else None

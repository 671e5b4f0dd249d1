"""Models of two towers, whose embeddings are compared by their product: images or sounds, and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry, image, texts


class EmbeddingTower(nn.Module):
    """Normalised embeddings of one kind of input.

    Args:
        model: with both towers.
        method: which computes the features of this kind.
    """

    def __init__(self, model: Any, method: str):
        super().__init__()
        self.model = model
        self.method = method

    def embedded(self, **inputs: Tensor) -> Tensor:
        """The embeddings."""
        found = getattr(self.model, self.method)(**inputs)
        made: Tensor = getattr(found, "pooler_output", found)
        return made / made.norm(dim=-1, keepdim=True)


class ImageTower(EmbeddingTower):
    """The embeddings of images."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.embedded(pixel_values=pixel_values)


class SoundTower(EmbeddingTower):
    """The embeddings of sounds."""

    def forward(self, input_features: Tensor) -> Tensor:
        return self.embedded(input_features=input_features)


class TextTower(EmbeddingTower):
    """The embeddings of texts."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = {} if attention_mask is None else {"attention_mask": attention_mask}
        return self.embedded(input_ids=input_ids, **mask)


def two_towers(model: Any, folder: Path) -> list[Entry]:
    """CLIP, SigLIP, CLAP and others: a function for images or sounds, and one for texts."""
    kind, settings = model.config.model_type, model.config.text_config
    length = settings.max_position_embeddings
    if kind in ("clap", "altclip"):  # positions are behind the one of padding
        length -= (settings.pad_token_id or 0) + 1
    written = texts(model, length)
    if kind == "siglip":  # is trained without a mask, and its processor makes none
        del written["attention_mask"]
    if kind == "clap":
        first = Entry("audio", SoundTower(model, "get_audio_features"), _sound(model), ("audio_embeds",))
    else:
        pixels = {"pixel_values": image(model, folder)}
        first = Entry("image", ImageTower(model, "get_image_features"), pixels, ("image_embeds",))
    return [first, Entry("text", TextTower(model, "get_text_features"), written, ("text_embeds",))]


def _sound(model: Any) -> dict[str, Tensor]:
    """The spectrum of a sound of ten seconds: (1, 1, frames, mels)."""
    config = model.config.audio_config
    if config.enable_fusion:
        raise PatcompError(
            "this CLAP fuses views of long sounds, which it takes as further inputs, and this is not supported; take a "
            " checkpoint without enable_fusion"
        )
    frames = min(1001, config.spec_size * (config.spec_size // config.num_mel_bins))
    made = torch.linspace(-1, 1, frames * config.num_mel_bins).reshape(1, 1, frames, config.num_mel_bins)
    return {"input_features": made.to(model.dtype)}

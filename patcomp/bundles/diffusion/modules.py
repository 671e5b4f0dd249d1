"""Models of diffusers and their text encoders as functions of tensors alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class TextEncoder(nn.Module):
    """CLIP's last hidden state: (1, length) to (1, length, width)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.model(input_ids).last_hidden_state
        return found


class Unet(nn.Module):
    """The noise of latents, of a negative and a positive prompt at once."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        found: Tensor = self.model(sample, timestep, encoder_hidden_states).sample
        return found


class Decoder(nn.Module):
    """The image of latents, from -1 to 1."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, z: Tensor) -> Tensor:
        found: Tensor = self.model.decode(z).sample
        return found


class Encoder(nn.Module):
    """The mean of an image's latents. Swift's encoder for editing takes as many channels as the latents have."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.model.encode(image).latent_dist.mean
        return found

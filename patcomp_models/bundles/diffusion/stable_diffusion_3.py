"""Stable Diffusion 3: a transformer and texts of two CLIP models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import noise
from patcomp_models.bundles.diffusion.stable_diffusion import FACTOR, autoencoder, penultimate, two_outputs
from patcomp_models.bundles.diffusion.variant import CLIP_TOKENS, PipelineVariant, scale_factors
from patcomp_models.bundles.kind import Component
from patcomp_models.errors import BundleError

_CHANNELS = 16
_LENGTH = 2 * CLIP_TOKENS
"""The rows of the text: those of CLIP, and zeros where T5's would be."""


class StableDiffusion3(PipelineVariant):
    """Stable Diffusion 3, without T5."""

    pipelines = ("StableDiffusion3Pipeline",)
    type = "stable-diffusion-3"
    longest_text = _LENGTH - CLIP_TOKENS
    for_swift = True
    parts = ("text_encoder", "text_encoder_2", "transformer")
    left_out: ClassVar[Mapping[str, str]] = {
        "text_encoder_3": "text_encoder_3: left out (T5), because Swift has no place for it; the transformer gets "
        "zeros for its rows, as from diffusers without this encoder",
        "image_encoder": "image_encoder: left out; it is for images as prompts (IP-Adapter)",
    }
    clip_tokenizers = ("tokenizer", "tokenizer_2")
    renamed: ClassVar[Mapping[str, str]] = {"sample": "hidden_states"}
    in_float32 = ("vae",)

    @property
    def multiple(self) -> int:
        return self.factor * int(self.config("transformer")["patch_size"])

    def check(self) -> None:
        super().check()
        channels = self.config("transformer")["in_channels"]
        if channels != _CHANNELS or self.factor != FACTOR:
            raise BundleError(
                f"the transformer takes {channels} channels and the autoencoder divides by {self.factor}; Swift fills "
                f"{_CHANNELS} channels of images divided by {FACTOR}"
            )
        if (largest := int(self.config("transformer")["pos_embed_max_size"]) * self.multiple) < self.size:
            raise BundleError(f"image_size is {self.size}, and the transformer has positions up to {largest} pixels")

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", penultimate),
            self.component("text_encoder_2", "text_encoder_2", penultimate),
            self.component("transformer", "transformer", self._transformer, "MMDiT"),
            *self.autoencoder(_CHANNELS),
        ]

    def _transformer(self, model: Any) -> Any:
        side, config = self.size // self.factor, model.config
        inputs = {
            "sample": noise(2, _CHANNELS, side, side),
            "timestep": torch.full((2,), 500.0),
            "encoder_hidden_states": noise(2, _LENGTH, config.joint_attention_dim),
            "pooled_projections": noise(2, config.pooled_projection_dim),
        }
        names = self.arguments(inputs)
        inputs = {name: value.to(model.dtype) for name, value in inputs.items()}
        return modules.Denoiser(model, names), inputs, ("noise_pred",)

    def block(self) -> Mapping[str, Any]:
        return {
            "type": self.type,
            "prediction_type": "flow",
            "image_size": self.size,
            **scale_factors(self.config("vae")),
            "default_guidance_scale": 7.0,
            "default_steps": 28,
        }

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels = int(block.get("image_size", 1024))
        latents = ((2, _CHANNELS, pixels // FACTOR, pixels // FACTOR), FLOATS)
        return {
            "text_encoder": two_outputs(),
            "text_encoder_2": two_outputs(),
            "transformer": Interface(
                {"sample": latents, "timestep": ((2,), FLOATS), "encoder_hidden_states": ((2, _LENGTH, "*"), FLOATS),
                 "pooled_projections": ((2, "*"), FLOATS)},
                {"noise_pred": latents}, False,
            ),
            **autoencoder(_CHANNELS, pixels, FACTOR),
        }  # fmt: skip

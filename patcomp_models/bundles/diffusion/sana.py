"""SANA: a transformer with linear attention, texts of Gemma 2, and latents of a deep autoencoder. For other hosts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.flux2 import joined_interface, joined_layers
from patcomp_models.bundles.diffusion.stable_diffusion import autoencoder
from patcomp_models.bundles.diffusion.variant import PipelineVariant, half_mask, noise
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import tokenizer_of
from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.errors import BundleError

_LENGTH = 300
"""Tokens of a text that the transformer takes."""


class Sana(PipelineVariant):
    """SANA; its text encoder also takes the instruction that diffusers writes before a prompt."""

    pipelines = ("SanaPipeline",)
    type = "sana"
    longest_text = _LENGTH
    parts = ("text_encoder", "transformer")
    layers = (-1,)
    clip_tokenizers = ()
    renamed: ClassVar[Mapping[str, str]] = {"sample": "hidden_states"}
    in_float32 = ("text_encoder", "vae")
    block_counts = ("latent_channels", "latent_factor", "text_length")
    halves = (modules.LatentDecoder, modules.LatentEncoder)

    @cached_property
    def factor(self) -> int:
        return int(2 ** (len(self.config("vae")["encoder_block_out_channels"]) - 1))

    @property
    def multiple(self) -> int:
        return self.factor * int(self.config("transformer").get("patch_size", 1))

    @property
    def _channels(self) -> int:
        return int(self.config("vae")["latent_channels"])

    def check(self) -> None:
        super().check()
        config = self.config("transformer")
        if config["in_channels"] != self._channels:
            raise BundleError(
                f"the transformer takes {config['in_channels']} channels, and the latents have {self._channels}"
            )
        if config.get("guidance_embeds"):
            raise BundleError("the transformer embeds the guidance (SANA-Sprint), and SanaPipeline gives it none")

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", joined_layers(self._text_length, self.layers)),
            self.component("transformer", "transformer", self._transformer),
            *self.autoencoder(self._channels),
        ]

    @cached_property
    def _text_length(self) -> int:
        """The tokens of the instruction and of a text, as many as diffusers takes."""
        from diffusers import SanaPipeline

        words = tokenizer_of(self.folder / "tokenizer")
        instruction = inspect.signature(SanaPipeline.__call__).parameters["complex_human_instruction"].default
        with tokenizing(f"the tokenizer of {str(self.folder)!r} cannot split the instruction of Sana"):
            return len(words.encode("\n".join(instruction))) + _LENGTH - 2

    def _transformer(self, model: Any) -> Any:
        side = self.size // self.factor
        inputs = {
            "sample": noise(2, self._channels, side, side).to(model.dtype),
            "timestep": torch.full((2,), 500.0, dtype=model.dtype),
            "encoder_hidden_states": noise(2, _LENGTH, model.config.caption_channels).to(model.dtype),
            "encoder_attention_mask": half_mask(_LENGTH).expand(2, -1).contiguous(),
        }
        return modules.Denoiser(model, self.arguments(inputs)), inputs, ("noise_pred",)

    def block(self) -> Mapping[str, Any]:
        factor = self.config("vae")["scaling_factor"]
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            "image_size": self.size,
            "encoder_scale_factor": factor,
            "decoder_scale_factor": factor,
            "default_guidance_scale": 4.5,
            "default_steps": 20,
            "latent_channels": self._channels,
            "latent_factor": self.factor,
            "text_length": self._text_length,
        }

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().call(block), "use_resolution_binning": False}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels, factor, channels = (int(block[name]) for name in ("image_size", "latent_factor", "latent_channels"))
        latents: tuple[InterfaceSizes, Sequence[str]] = ((2, channels, pixels // factor, pixels // factor), FLOATS)
        inputs = {
            "sample": latents, "timestep": ((2,), FLOATS), "encoder_hidden_states": ((2, _LENGTH, "*"), FLOATS),
            "encoder_attention_mask": ((2, _LENGTH), ("int32",)),
        }  # fmt: skip
        return {
            "text_encoder": joined_interface(int(block["text_length"])),
            "transformer": Interface(inputs, {"noise_pred": latents}),
            **autoencoder(channels, pixels, factor),
        }

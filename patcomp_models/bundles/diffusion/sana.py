"""SANA: a transformer with linear attention, texts of Gemma 2, and latents of a deep autoencoder.

SANA is for other hosts, and SANA-Sprint for Apple's Swift package of revision 34ab73d.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import half_mask, noise
from patcomp_models.bundles.diffusion.flux2 import joined_interface, joined_layers
from patcomp_models.bundles.diffusion.stable_diffusion import autoencoder
from patcomp_models.bundles.diffusion.variant import PipelineVariant
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import tokenizer_of
from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.checkpoints.untrusted import named_class
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
    block_counts: ClassVar[tuple[str, ...]] = ("latent_channels", "latent_factor", "text_length")
    halves = (modules.LatentDecoder, modules.LatentEncoder)
    embeds_guidance: ClassVar[bool] = False
    """Whether the transformer takes the guidance, and each step calls it once."""

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
        if bool(config.get("guidance_embeds")) and not self.embeds_guidance:
            raise BundleError("the transformer embeds the guidance (SANA-Sprint), and SanaPipeline gives it none")
        if self.embeds_guidance and not config.get("guidance_embeds"):
            raise BundleError(f"the transformer embeds no guidance, and {self.pipelines[0]} gives it one")

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", joined_layers(self._text_length, self.layers)),
            self.component("transformer", "transformer", self._transformer),
            *self.autoencoder(self._channels),
        ]

    @cached_property
    def _text_length(self) -> int:
        """The tokens of the instruction and of a text, as many as diffusers takes."""
        pipeline = named_class("diffusers", self.pipelines[0], "pipeline")
        words = tokenizer_of(self.folder / "tokenizer")
        instruction = inspect.signature(pipeline.__call__).parameters["complex_human_instruction"].default
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


_SPRINT_CHANNELS = _SPRINT_FACTOR = 32
"""Of the latents that Swift makes."""
_ANGLES = {"max_timesteps": 1.5708, "intermediate_timesteps": 1.3}
"""The times of two steps, in diffusers and in Swift."""


class SanaSprint(Sana):
    """SANA-Sprint, in few steps, as Swift calls it (FlowTransformerPipeline+SanaSprint.swift, 87f9cfc).

    The text encoder gives as many states as the transformer takes, the mask is of floats, and the guidance is what a
    user says."""

    pipelines = ("SanaSprintPipeline",)
    type = "sana-sprint"
    for_swift = True
    negative_prompt = False
    embeds_guidance = True
    positional = ("hidden_states",)
    renamed: ClassVar[Mapping[str, str]] = {}
    block_counts = ("text_input_length", "text_sequence_length")

    def check(self) -> None:
        super().check()
        if (self._channels, self.factor) != (_SPRINT_CHANNELS, _SPRINT_FACTOR):
            raise BundleError(
                f"the latents have {self._channels} channels and the autoencoder divides by {self.factor}; Swift fills "
                f"{_SPRINT_CHANNELS} channels of images divided by {_SPRINT_FACTOR}"
            )

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", self._text_encoder),
            self.component("transformer", "transformer", self._transformer),
            *self.autoencoder(self._channels),
        ]

    def _text_encoder(self, model: Any) -> Any:
        _, inputs, outputs = joined_layers(self._text_length, self.layers)(model)
        return modules.SelectedTextEncoder(model, self.layers, _LENGTH), inputs, outputs

    def _transformer(self, model: Any) -> Any:
        side = self.size // self.factor
        inputs = {
            "hidden_states": noise(1, self._channels, side, side),
            "encoder_hidden_states": noise(1, _LENGTH, model.config.caption_channels),
            "encoder_attention_mask": half_mask(_LENGTH),
            "timestep": torch.full((1,), 0.5),
            "guidance": torch.full((1,), 4.5),
        }
        given = {name: value.to(model.dtype) for name, value in inputs.items()}
        return modules.GuidedDenoiser(model), given, ("velocity",)

    def block(self) -> Mapping[str, Any]:
        from diffusers import SanaSprintPipeline

        words = inspect.signature(SanaSprintPipeline.__call__).parameters["complex_human_instruction"].default
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            "image_size": self.size,
            "decoder_scale_factor": self.config("vae")["scaling_factor"],
            "default_guidance_scale": 4.5,
            "default_steps": 2,
            **_ANGLES,
            "prompt_prefix": "\n".join(words),
            "text_input_length": self._text_length,
            "text_sequence_length": _LENGTH,
        }

    @classmethod
    def of_steps(cls, block: Mapping[str, Any], steps: int) -> Mapping[str, Any]:
        times = {name: block.get(name, value) for name, value in _ANGLES.items()}
        return times if steps == 2 else {**times, "intermediate_timesteps": None}

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        given = super().inputs(arguments, config)
        return {**given, "guidance": given["guidance"] / config["guidance_embeds_scale"]}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels = int(block["image_size"])
        length, count = (int(block[name]) for name in ("text_input_length", "text_sequence_length"))
        side = pixels // _SPRINT_FACTOR
        latents: tuple[InterfaceSizes, Sequence[str]] = ((1, _SPRINT_CHANNELS, side, side), FLOATS)
        inputs = {
            "hidden_states": latents, "encoder_hidden_states": ((1, count, "*"), FLOATS),
            "encoder_attention_mask": ((1, count), FLOATS), "timestep": ((1,), FLOATS), "guidance": ((1,), FLOATS),
        }  # fmt: skip
        ids = ((1, length), ("int32",))
        return {
            "text_encoder": Interface(
                {"input_ids": ids, "attention_mask": ids}, {"hidden_states": ((1, count, "*"), FLOATS)}, False
            ),
            "transformer": Interface(inputs, {"velocity": latents}, False),
            **autoencoder(_SPRINT_CHANNELS, pixels, _SPRINT_FACTOR),
        }

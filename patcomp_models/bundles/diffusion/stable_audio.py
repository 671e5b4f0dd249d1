"""Stable Audio: a transformer, texts of T5, projections of text and seconds, a decoder of sound. For other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import torch

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import example_text, half_mask, noise
from patcomp_models.bundles.diffusion.variant import PipelineVariant
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import tokenizer_of
from patcomp_models.errors import BundleError

_LONGEST = 4096
"""Tokens of a text that a folder may name; transformers names 10 ** 30 where a tokenizer says nothing."""


class StableAudio(PipelineVariant):
    """Stable Audio Open; the sound has the length that the transformer was trained on."""

    pipelines = ("StableAudioPipeline",)
    type = "stable-audio"
    parts = ("text_encoder", "projection_model", "transformer")
    makes = "sound"
    clip_tokenizers = ()
    renamed: ClassVar[Mapping[str, str]] = {"sample": "hidden_states"}
    block_counts = ("sampling_rate", "audio_channels", "latent_channels", "latent_count", "latent_factor",
                    "text_length")  # fmt: skip

    @classmethod
    def ratios(cls, config: Mapping[str, Any]) -> Mapping[str, int]:
        return {"hop_length": prod(config["downsampling_ratios"])}

    @cached_property
    def factor(self) -> int:
        return int(self.ratios(self.config("vae"))["hop_length"])

    @cached_property
    def _text_length(self) -> int:
        return int(tokenizer_of(self.folder / "tokenizer").model_max_length)

    def check(self) -> None:
        super().check()
        if self._text_length > _LONGEST:
            raise BundleError(
                f"the tokenizer says no length of texts; write model_max_length, 128 for Stable Audio Open, into "
                f"{str(self.folder / 'tokenizer' / 'tokenizer_config.json')!r}"
            )
        channels, latents = self.config("transformer")["in_channels"], self.config("vae")["decoder_input_channels"]
        if channels != latents:
            raise BundleError(f"the transformer takes {channels} channels, and the decoder {latents}")

    def check_sizes(self) -> None:
        for name in ("image_size", "half", "width", "frames"):
            if getattr(self, name):
                raise BundleError(f"{name} is an option for images and videos, and {self.pipelines[0]} makes a sound")

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", self._text_encoder),
            self.component("projection_model", "projection_model", self._projections),
            self.component("transformer", "transformer", self._transformer),
            self.component("vae_decoder", "vae", self._decoder),
        ]

    def _text_encoder(self, model: Any) -> Any:
        inputs = {"input_ids": example_text(model, self._text_length), "attention_mask": half_mask(self._text_length)}
        return modules.MaskedTextEncoder(model), inputs, ("last_hidden_state",)

    def _projections(self, model: Any) -> Any:
        config = model.config
        inputs = {
            "text_hidden_states": noise(1, self._text_length, config.text_encoder_dim).to(model.dtype),
            "start_seconds": torch.tensor([float(config.min_value)]),
            "end_seconds": torch.tensor([float(config.max_value)]),
        }
        return modules.Projections(model), inputs, ("text", "seconds_start", "seconds_end")

    def _transformer(self, model: Any) -> Any:
        from diffusers.models.embeddings import get_1d_rotary_pos_embed

        config = model.config
        inputs = {
            "sample": noise(2, config.in_channels, config.sample_size).to(model.dtype),
            "timestep": torch.full((1,), 0.5, dtype=model.dtype),
            "encoder_hidden_states": noise(2, self._text_length + 2, config.cross_attention_input_dim).to(model.dtype),
            "global_hidden_states": noise(2, 1, config.global_states_input_dim).to(model.dtype),
        }
        tables = get_1d_rotary_pos_embed(
            config.attention_head_dim // 2, config.sample_size + 1, use_real=True, repeat_interleave_real=False
        )
        names = self.arguments(inputs)
        return modules.Denoiser(model, names, {"rotary_embedding": tables}), inputs, ("noise_pred",)

    def _decoder(self, model: Any) -> Any:
        for module in model.modules():
            if hasattr(module, "weight_g"):  # a weight that is computed at each call
                torch.nn.utils.remove_weight_norm(module)
        latents = noise(1, model.config.decoder_input_channels, self.config("transformer")["sample_size"])
        return modules.LatentDecoder(model), {"z": latents.to(model.dtype)}, ("sound",)

    def block(self) -> Mapping[str, Any]:
        vae, transformer = self.config("vae"), self.config("transformer")
        return {
            "type": self.type,
            "prediction_type": self.config("scheduler").get("prediction_type", "v_prediction"),
            "sampling_rate": vae["sampling_rate"],
            "audio_channels": vae["audio_channels"],
            "latent_channels": transformer["in_channels"],
            "latent_count": transformer["sample_size"],
            "latent_factor": self.factor,
            "text_length": self._text_length,
            "default_guidance_scale": 7.0,
            "default_steps": 100,
        }

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        length, count, channels = block["text_length"], block["latent_count"], block["latent_channels"]
        samples: tuple[InterfaceSizes, Sequence[str]] = (
            (1, block["audio_channels"], count * block["latent_factor"]),
            FLOATS,
        )
        latents: tuple[InterfaceSizes, Sequence[str]] = ((2, channels, count), FLOATS)
        rows: tuple[InterfaceSizes, Sequence[str]] = ((1, length, "*"), FLOATS)
        ids, seconds = ((1, length), ("int32",)), ((1,), ("float32",))
        one: tuple[InterfaceSizes, Sequence[str]] = ((1, 1, "*"), FLOATS)
        return {
            "text_encoder": Interface({"input_ids": ids, "attention_mask": ids}, {"last_hidden_state": rows}),
            "projection_model": Interface(
                {"text_hidden_states": rows, "start_seconds": seconds, "end_seconds": seconds},
                {"text": rows, "seconds_start": one, "seconds_end": one},
            ),
            "transformer": Interface(
                {"sample": latents, "timestep": ((1,), FLOATS),
                 "encoder_hidden_states": ((2, length + 2, "*"), FLOATS),
                 "global_hidden_states": ((2, 1, "*"), FLOATS)},
                {"noise_pred": latents},
            ),
            "vae_decoder": Interface({"z": ((1, channels, count), FLOATS)}, {"sound": samples}),
        }  # fmt: skip

"""Wan 2.1 from texts to videos: a transformer, texts of UMT5 and an autoencoder of videos. For other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from patcomp.bundle_folders.contract import FLOATS, Interface, Sizes
from patcomp.bundle_folders.errors import BundleError
from patcomp.bundles.diffusion import modules
from patcomp.bundles.diffusion.variant import drawn, half_mask, latent_statistics, text
from patcomp.bundles.diffusion.video import Video
from patcomp.bundles.kind import Component

LENGTH = 512
"""Tokens of a text."""


class Wan(Video):
    """Wan 2.1; the positions of the patches are constants of the transformer."""

    pipelines = ("WanPipeline",)
    type = "wan"
    parts = ("text_encoder", "transformer")
    in_float32 = ("vae",)
    usual_size = 480
    usual_width = 832
    usual_frames = 81
    frame_rate = 16

    @cached_property
    def factor(self) -> int:
        return int(self.config("vae").get("scale_factor_spatial", 8))

    @property
    def frame_factor(self) -> int:
        return int(self.config("vae").get("scale_factor_temporal", 4))

    @property
    def channels(self) -> int:
        return int(self.config("vae")["z_dim"])

    @property
    def multiple(self) -> int:
        return self.factor * int(self.config("transformer")["patch_size"][1])

    def check(self) -> None:
        if self.has("transformer_2") or self.index.get("boundary_ratio") is not None:
            raise BundleError(
                "the pipeline has two transformers (Wan 2.2 A14B), one for steps with much noise and one for the "
                "others, which is not supported; convert Wan 2.1"
            )
        if self.index.get("expand_timesteps"):
            raise BundleError(
                "the pipeline gives each patch a time of its own (expand_timesteps, Wan 2.2 TI2V), which is not "
                "supported; convert Wan 2.1"
            )
        super().check()
        config = self.config("transformer")
        if config["in_channels"] != self.channels or config.get("image_dim") is not None:
            raise BundleError(
                f"the transformer takes {config['in_channels']} channels and the latents have {self.channels}; those "
                "that take an image (image to video) are not supported"
            )

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", _text_encoder),
            self.component("transformer", "transformer", self._transformer),
            self.decoder(),
        ]

    def _transformer(self, model: Any) -> Any:
        inputs = {
            "hidden_states": drawn(1, *self.latents).to(model.dtype),
            "timestep": torch.full((1,), 500.0),
            "encoder_hidden_states": drawn(1, LENGTH, model.config.text_dim).to(model.dtype),
        }
        return modules.Denoiser(model, tuple(inputs)), inputs, ("noise_pred",)

    def block(self) -> Mapping[str, Any]:
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            **self.sizes_in_block(),
            **latent_statistics(self.config("vae")),
            "default_guidance_scale": 5.0,
            "default_steps": 50,
        }

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().call(block), "max_sequence_length": LENGTH}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        latents: tuple[Sizes, Sequence[str]] = ((1, *cls.latents_of(block)), FLOATS)
        ids = ((1, LENGTH), ("int32",))
        inputs = {
            "hidden_states": latents, "timestep": ((1,), ("float32",)),
            "encoder_hidden_states": ((1, LENGTH, "*"), FLOATS),
        }  # fmt: skip
        return {
            "text_encoder": Interface(
                {"input_ids": ids, "attention_mask": ids}, {"last_hidden_state": ((1, LENGTH, "*"), FLOATS)}
            ),
            "transformer": Interface(inputs, {"noise_pred": latents}),
            "vae_decoder": cls.decoder_interface(block),
        }


def _text_encoder(model: Any) -> Any:
    inputs = {"input_ids": text(model, LENGTH), "attention_mask": half_mask(LENGTH)}
    return modules.MaskedTextEncoder(model), inputs, ("last_hidden_state",)

"""Wan from texts to videos: one transformer or two, texts of UMT5 and an autoencoder of videos. For other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import example_text, half_mask, noise
from patcomp_models.bundles.diffusion.variant import latent_statistics
from patcomp_models.bundles.diffusion.video import Video
from patcomp_models.bundles.kind import Component
from patcomp_models.errors import BundleError

_LENGTH = 512
"""Tokens of a text."""


class Wan(Video):
    """Wan 2.1 and 2.2; the positions of the patches are constants of the transformers.

    Wan 2.2 A14B has two transformers; the second one is for steps with little noise. Wan 2.2 TI2V gives each patch a
    time.
    """

    pipelines = ("WanPipeline",)
    type = "wan"
    longest_text = _LENGTH
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
        super().check()
        for part in self._transformers:
            config = self.config(part)
            if config["in_channels"] != self.channels or config.get("image_dim") is not None:
                raise BundleError(
                    f"the {part} takes {config['in_channels']} channels and the latents have {self.channels}; those "
                    "that take an image (image to video) are not supported"
                )
        if self.has("transformer_2") and len(self._transformers) == 1:
            raise BundleError(
                f"{str(self.folder / 'model_index.json')!r} names a transformer_2 and no boundary_ratio, the time from "
                "which the pipeline takes it; add that"
            )

    @classmethod
    def further_parts(cls, facts: Mapping[str, Any]) -> tuple[str, ...]:
        return () if facts.get("boundary_ratio") is None else ("transformer_2",)

    @property
    def _transformers(self) -> tuple[str, ...]:
        return "transformer", *self.further_parts(self.index)

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", _text_encoder),
            *(self.component(part, part, self._transformer) for part in self._transformers),
            self.decoder(),
        ]

    @property
    def _times(self) -> tuple[int, ...]:
        """The shape of the time: one, or one for each patch of 2 x 2."""
        return times(self.latents, is_expanded=bool(self.index.get("expand_timesteps")))

    def _transformer(self, model: Any) -> Any:
        inputs = {
            "hidden_states": noise(1, *self.latents).to(model.dtype),
            "timestep": torch.full(self._times, 500.0),
            "encoder_hidden_states": noise(1, _LENGTH, model.config.text_dim).to(model.dtype),
        }
        return modules.Denoiser(model, tuple(inputs)), inputs, ("noise_pred",)

    def block(self) -> Mapping[str, Any]:
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            **self.sizes_in_block(),
            **latent_statistics(self.config("vae")),
            "boundary_ratio": self.index.get("boundary_ratio"),
            "expand_timesteps": bool(self.index.get("expand_timesteps")),
            "default_guidance_scale": 5.0,
            "default_steps": 50,
        }

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        latents: tuple[InterfaceSizes, Sequence[str]] = ((1, *cls.latents_of(block)), FLOATS)
        ids = ((1, _LENGTH), ("int32",))
        time = times(cls.latents_of(block), is_expanded=bool(block.get("expand_timesteps")))
        inputs = {
            "hidden_states": latents, "timestep": (time, ("float32",)),
            "encoder_hidden_states": ((1, _LENGTH, "*"), FLOATS),
        }  # fmt: skip
        transformer = Interface(inputs, {"noise_pred": latents})
        return {
            "text_encoder": Interface(
                {"input_ids": ids, "attention_mask": ids}, {"last_hidden_state": ((1, _LENGTH, "*"), FLOATS)}
            ),
            "transformer": transformer,
            "transformer_2": transformer,
            "vae_decoder": cls.decoder_interface(block),
        }


def times(latents: tuple[int, int, int, int], *, is_expanded: bool) -> tuple[int, ...]:
    """The shape of a transformer's time: (1,), or (1, patches of 2 x 2)."""
    _, frames, height, width = latents
    return (1, frames * -(-height // 2) * -(-width // 2)) if is_expanded else (1,)


def _text_encoder(model: Any) -> Any:
    inputs = {"input_ids": example_text(model, _LENGTH), "attention_mask": half_mask(_LENGTH)}
    return modules.MaskedTextEncoder(model), inputs, ("last_hidden_state",)

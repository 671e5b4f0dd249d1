"""LTX-Video from texts to videos: a transformer, texts of T5 and an autoencoder of videos. For other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import example_text, half_mask, noise
from patcomp_models.bundles.diffusion.video import Video
from patcomp_models.bundles.kind import Component
from patcomp_models.checkpoints.untrusted import array_in
from patcomp_models.errors import BundleError

_LENGTH = 128
"""Tokens of a text."""
_SIDECARS = {"vae_latents_mean.npy": "latents_mean", "vae_latents_std.npy": "latents_std"}
"""The statistics by which the host scales latents, and the buffers of the autoencoder that hold them."""


class LtxVideo(Video):
    """LTX-Video; the positions of the patches, at 25 frames a second, are constants of the transformer."""

    pipelines = ("LTXPipeline",)
    type = "ltx-video"
    longest_text = _LENGTH
    parts = ("text_encoder", "transformer")
    usual_size = 512
    usual_width = 704
    usual_frames = 161
    frame_rate = 25
    sidecars: ClassVar[Sequence[str]] = tuple(_SIDECARS)

    @classmethod
    def ratios(cls, config: Mapping[str, Any]) -> Mapping[str, int]:
        doubled = 2 ** sum(config["spatio_temporal_scaling"])
        found = {"spatial": config["patch_size"] * doubled, "temporal": config["patch_size_t"] * doubled}
        return {f"{name}_compression_ratio": config.get(f"{name}_compression_ratio") or ratio
                for name, ratio in found.items()}  # fmt: skip

    @cached_property
    def factor(self) -> int:
        return int(self.ratios(self.config("vae"))["spatial_compression_ratio"])

    @property
    def frame_factor(self) -> int:
        return int(self.ratios(self.config("vae"))["temporal_compression_ratio"])

    @property
    def channels(self) -> int:
        return int(self.config("vae")["latent_channels"])

    @property
    def _is_timed(self) -> bool:
        """Whether the decoder takes a time, as of LTX-Video 0.9.5 and later."""
        return bool(self.config("vae").get("timestep_conditioning"))

    def check(self) -> None:
        super().check()
        config, vae = self.config("transformer"), self.config("vae")
        if config["in_channels"] != self.channels or (config.get("patch_size", 1), config.get("patch_size_t", 1)) != (
            1,
            1,
        ):
            raise BundleError(
                f"the transformer takes {config['in_channels']} channels in patches of {config.get('patch_size')}, and "
                f"must take the {self.channels} of the latents, one by one"
            )
        if any(vae.get("decoder_inject_noise", ())):
            raise BundleError(
                "the decoder draws noise (decoder_inject_noise, LTX-Video 0.9.1), which an asset cannot; convert "
                "LTX-Video 0.9.0, or 0.9.5 and later"
            )

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", _text_encoder),
            self.component("transformer", "transformer", self._transformer),
            self.decoder(is_timed=self._is_timed),
        ]

    def _transformer(self, model: Any) -> Any:
        channels, *sizes = self.latents
        inputs = {
            "hidden_states": noise(2, int(np.prod(sizes)), channels).to(model.dtype),
            "timestep": torch.full((2,), 500.0),
            "encoder_hidden_states": noise(2, _LENGTH, model.config.caption_channels).to(model.dtype),
            "encoder_attention_mask": half_mask(_LENGTH).expand(2, -1).contiguous(),
        }
        scale = (self.frame_factor / self.frame_rate, self.factor, self.factor)
        options = dict(zip(("num_frames", "height", "width"), sizes, strict=True))
        module = modules.Denoiser(model, tuple(inputs), {**options, "rope_interpolation_scale": scale})
        return module, inputs, ("noise_pred",)

    def block(self) -> Mapping[str, Any]:
        factor = self.config("vae").get("scaling_factor", 1.0)
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            **self.sizes_in_block(),
            "encoder_scale_factor": factor,
            "decoder_scale_factor": factor,
            "timestep_conditioning": self._is_timed,
            "default_guidance_scale": 3.0,
            "default_steps": 50,
        }

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().call(block), "frame_rate": cls.frame_rate}

    @classmethod
    def statistics(cls, bundle: Path) -> Mapping[str, Tensor]:
        return {name: torch.from_numpy(array_in(bundle / file)) for file, name in _SIDECARS.items()}

    def write_files(self, bundle: Path) -> None:
        from patcomp_models.bundles.loading import model_of

        model = model_of(self.folder / "vae", *self.class_of("vae"), "float32")
        for file, name in _SIDECARS.items():
            np.save(bundle / file, getattr(model, name).numpy().astype(np.float32))

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        channels, *sizes = cls.latents_of(block)
        latents: tuple[InterfaceSizes, Sequence[str]] = ((2, int(np.prod(sizes)), channels), FLOATS)
        inputs = {
            "hidden_states": latents, "timestep": ((2,), ("float32",)),
            "encoder_hidden_states": ((2, _LENGTH, "*"), FLOATS), "encoder_attention_mask": ((2, _LENGTH), ("int32",)),
        }  # fmt: skip
        return {
            "text_encoder": Interface(
                {"input_ids": ((1, _LENGTH), ("int32",))}, {"last_hidden_state": ((1, _LENGTH, "*"), FLOATS)}
            ),
            "transformer": Interface(inputs, {"noise_pred": latents}),
            "vae_decoder": cls.decoder_interface(block),
        }


def _text_encoder(model: Any) -> Any:
    return modules.TextEncoder(model), {"input_ids": example_text(model, _LENGTH)}, ("last_hidden_state",)

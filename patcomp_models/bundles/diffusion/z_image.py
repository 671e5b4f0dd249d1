"""Z-Image: a transformer of images and texts in one sequence, and texts of Qwen3. For hosts that are not Swift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import half_mask, noise
from patcomp_models.bundles.diffusion.flux2 import joined_interface, joined_layers
from patcomp_models.bundles.diffusion.stable_diffusion import FACTOR, autoencoder
from patcomp_models.bundles.diffusion.variant import PipelineVariant, scale_factors, with_rows
from patcomp_models.bundles.kind import Component
from patcomp_models.errors import BundleError

_LENGTH = 512
"""Tokens of a text."""
_CHANNELS, _PATCH = 16, 2


class ZImage(PipelineVariant):
    """Z-Image and Z-Image-Turbo; the transformer computes the positions, which depend on the length of the text."""

    pipelines = ("ZImagePipeline",)
    type = "z-image"
    longest_text = _LENGTH
    parts = ("text_encoder", "transformer")
    layers = (-2,)
    clip_tokenizers = ()
    positional = ("hidden_states", "timestep", "encoder_hidden_states")
    takes_lists = True
    no_guidance = 0.0
    patch = _PATCH
    usual_size = 1024

    def check(self) -> None:
        super().check()
        config = self.config("transformer")
        if config["in_channels"] != _CHANNELS or self.factor != FACTOR:
            raise BundleError(
                f"the transformer takes {config['in_channels']} channels and the autoencoder divides by {self.factor}; "
                f"Z-Image has {_CHANNELS} channels of images divided by {FACTOR}"
            )
        tables, side = config["axes_lens"], self.size // self.multiple
        if tables[0] < _LENGTH + 2 or side > min(tables[1:]):
            raise BundleError(
                f"the transformer has positions for {tables[0]} tokens and {min(tables[1:])} patches along a side, and "
                f"takes texts of {_LENGTH} tokens and images of {side} patches; choose a smaller image_size"
            )
        if config.get("siglip_feat_dim") is not None:
            raise BundleError("the transformer takes features of images (siglip_feat_dim), which ZImagePipeline lacks")
        if _PATCH not in config["all_patch_size"] or 1 not in config["all_f_patch_size"]:
            raise BundleError(
                f"the transformer has patches of {config['all_patch_size']}, and ZImagePipeline takes those of {_PATCH}"
            )

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", joined_layers(_LENGTH, self.layers)),
            self.component("transformer", "transformer", self._transformer),
            *self.autoencoder(_CHANNELS),
        ]

    def _transformer(self, model: Any) -> Any:
        side = self.size // FACTOR
        inputs = {
            "hidden_states": noise(1, _CHANNELS, side, side).to(model.dtype),
            "timestep": torch.full((1,), 0.5, dtype=model.dtype),
            "encoder_hidden_states": noise(1, _LENGTH, model.config.cap_feat_dim).to(model.dtype),
            "encoder_hidden_states_mask": half_mask(_LENGTH),
        }
        return modules.ZImageDenoiser(model, side // _PATCH), inputs, ("output",)

    def block(self) -> Mapping[str, Any]:
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            "image_size": self.size,
            **scale_factors(self.config("vae")),
            "default_guidance_scale": 5.0,
            "default_steps": 50,
        }

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        words = arguments["encoder_hidden_states"]
        mask = with_rows(torch.ones(words.shape[:2]), _LENGTH)
        return {**arguments, "encoder_hidden_states": with_rows(words, _LENGTH), "encoder_hidden_states_mask": mask}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels = int(block.get("image_size", 1024))
        latents: tuple[InterfaceSizes, Sequence[str]] = (
            (1, _CHANNELS, pixels // FACTOR, pixels // FACTOR),
            FLOATS,
        )
        inputs = {
            "hidden_states": latents, "timestep": ((1,), FLOATS), "encoder_hidden_states": ((1, _LENGTH, "*"), FLOATS),
            "encoder_hidden_states_mask": ((1, _LENGTH), ("int32",)),
        }  # fmt: skip
        return {
            "text_encoder": joined_interface(_LENGTH),
            "transformer": Interface(inputs, {"output": latents}),
            **autoencoder(_CHANNELS, pixels, FACTOR),
        }

"""Qwen-Image: a transformer, texts of Qwen2.5-VL, and one frame of an autoencoder of videos. For other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import half_mask, noise
from patcomp_models.bundles.diffusion.flux2 import joined_interface, joined_layers
from patcomp_models.bundles.diffusion.stable_diffusion import FACTOR, autoencoder
from patcomp_models.bundles.diffusion.variant import PipelineVariant, latent_statistics, with_rows
from patcomp_models.bundles.kind import Component
from patcomp_models.errors import BundleError

_LENGTH = 512
"""Tokens of a text that the transformer takes."""
_TEMPLATE = 34
"""Tokens before the text that diffusers adds, and whose hidden states it drops."""
_CHANNELS, _PATCH = 16, 2
_OTHERS = {"guidance_embeds": "embeds the guidance", "zero_cond_t": "edits images",
           "use_additional_t_cond": "makes layers of images", "use_layer3d_rope": "makes layers of images"}  # fmt: skip
"""Switches of transformers that `QwenImagePipeline` does not feed."""


class QwenImage(PipelineVariant):
    """Qwen-Image from texts; the positions are constants of the transformer, for texts of one length with a mask."""

    pipelines = ("QwenImagePipeline",)
    type = "qwen-image"
    longest_text = _LENGTH
    parts = ("text_encoder", "transformer")
    layers = (-1,)
    clip_tokenizers = ()
    guidance = "true_cfg_scale"
    cuts_texts = True
    patch = _PATCH
    usual_size = 1024
    halves = (modules.FrameDecoder, modules.FrameEncoder)

    @cached_property
    def factor(self) -> int:
        return int(2 ** len(self.config("vae")["temperal_downsample"]))

    def check(self) -> None:
        super().check()
        config, channels = self.config("transformer"), self.config("vae")["z_dim"]
        if channels != _CHANNELS or self.factor != FACTOR:
            raise BundleError(
                f"the latents have {channels} channels and the autoencoder divides by {self.factor}; Qwen-Image has "
                f"{_CHANNELS} channels of images divided by {FACTOR}"
            )
        for name, meaning in _OTHERS.items():
            if config.get(name):
                raise BundleError(f"the transformer {meaning} ({name}), which QwenImagePipeline does not do")

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", joined_layers(_LENGTH + _TEMPLATE, self.layers)),
            self.component("transformer", "transformer", self._transformer),
            *self.autoencoder(_CHANNELS),
        ]

    def _transformer(self, model: Any) -> Any:
        side = self.size // FACTOR // _PATCH
        inputs = {
            "hidden_states": noise(1, side * side, model.config.in_channels).to(model.dtype),
            "encoder_hidden_states": noise(1, _LENGTH, model.config.joint_attention_dim).to(model.dtype),
            "encoder_hidden_states_mask": half_mask(_LENGTH),
            "timestep": torch.full((1,), 0.5, dtype=model.dtype),
        }
        shapes = {"img_shapes": [[(1, side, side)]]}
        return modules.Denoiser(model, tuple(inputs), shapes), inputs, ("output",)

    def block(self) -> Mapping[str, Any]:
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            "image_size": self.size,
            **latent_statistics(self.config("vae")),
            "default_guidance_scale": 4.0,
            "default_steps": 50,
        }

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        given = dict(super().inputs(arguments, config))
        words, mask = given["encoder_hidden_states"], given.get("encoder_hidden_states_mask")
        mask = torch.ones(words.shape[:2]) if mask is None else mask
        return given | {
            "encoder_hidden_states": with_rows(words, _LENGTH),
            "encoder_hidden_states_mask": with_rows(mask, _LENGTH),
        }

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels = int(block.get("image_size", 1024))
        latents: tuple[InterfaceSizes, Sequence[str]] = (
            (1, (pixels // FACTOR // _PATCH) ** 2, _CHANNELS * _PATCH**2),
            FLOATS,
        )
        inputs = {
            "hidden_states": latents, "encoder_hidden_states": ((1, _LENGTH, "*"), FLOATS),
            "encoder_hidden_states_mask": ((1, _LENGTH), ("int32",)), "timestep": ((1,), FLOATS),
        }  # fmt: skip
        return {
            "text_encoder": joined_interface(_LENGTH + _TEMPLATE),
            "transformer": Interface(inputs, {"output": latents}),
            **autoencoder(_CHANNELS, pixels, FACTOR),
        }

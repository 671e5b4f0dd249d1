"""FLUX.1: a transformer, the vector of a text by CLIP, and its rows by T5. For hosts that are not Swift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import example_text, noise, tables_like
from patcomp_models.bundles.diffusion.stable_diffusion import FACTOR, autoencoder
from patcomp_models.bundles.diffusion.variant import CLIP_TOKENS, PipelineVariant, scale_factors
from patcomp_models.bundles.kind import Component

_CHANNELS, _PATCH = 16, 2


class Flux(PipelineVariant):
    """FLUX.1 dev and schnell; the tables of its rotary embedding are inputs, as of FLUX.2."""

    pipelines = ("FluxPipeline",)
    type = "flux"
    parts = ("text_encoder", "text_encoder_2", "transformer")
    left_out: ClassVar[Mapping[str, str]] = {
        "image_encoder": "image_encoder: left out; it is for images as prompts (IP-Adapter)"
    }
    negative_prompt = False
    patch = _PATCH
    usual_size = 1024

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", _vector),
            self.component("text_encoder_2", "text_encoder_2", self._rows),
            self.component("transformer", "transformer", self._transformer),
            *self.autoencoder(_CHANNELS),
        ]

    @property
    def _length(self) -> int:
        """Tokens of a text for T5: schnell was trained on fewer."""
        return 512 if self._has_guidance else 256

    @property
    def _has_guidance(self) -> bool:
        return bool(self.config("transformer").get("guidance_embeds", False))

    def _rows(self, model: Any) -> Any:
        return modules.TextEncoder(model), {"input_ids": example_text(model, self._length)}, ("last_hidden_state",)

    def _transformer(self, model: Any) -> Any:
        config, count, length = model.config, (self.size // FACTOR // _PATCH) ** 2, self._length
        inputs = {
            "hidden_states": noise(1, count, config.in_channels).to(model.dtype),
            "encoder_hidden_states": noise(1, length, config.joint_attention_dim).to(model.dtype),
            "pooled_projections": noise(1, config.pooled_projection_dim).to(model.dtype),
            "timestep": torch.full((1,), 0.5, dtype=model.dtype),
            **tables_like(length + count, config.axes_dims_rope),
        }
        if self._has_guidance:
            inputs["guidance"] = torch.full((1,), 3.5)
        return modules.FluxDenoiser(model), inputs, ("output",)

    def block(self) -> Mapping[str, Any]:
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            "image_size": self.size,
            **scale_factors(self.config("vae")),
            "default_guidance_scale": 3.5 if self._has_guidance else 0.0,
            "default_steps": 28 if self._has_guidance else 4,
            "guidance_embeds": self._has_guidance,
            "rope_axes_dims": list(self.config("transformer")["axes_dims_rope"]),
            "rope_theta": 10000,
        }

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().call(block), "max_sequence_length": 512 if block["guidance_embeds"] else 256}

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        from diffusers.models.transformers.transformer_flux import FluxPosEmbed

        embed = FluxPosEmbed(theta=10000, axes_dim=config.axes_dims_rope)
        cos, sin = embed(torch.cat([arguments["txt_ids"], arguments["img_ids"]]))
        return {**super().inputs(arguments, config), "rotary_emb_cos": cos, "rotary_emb_sin": sin}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels, has_guidance = int(block.get("image_size", 1024)), bool(block.get("guidance_embeds"))
        count, channels = (pixels // FACTOR // _PATCH) ** 2, _CHANNELS * _PATCH**2
        length = 512 if has_guidance else 256
        latents: tuple[InterfaceSizes, Sequence[str]] = ((1, count, channels), FLOATS)
        table: tuple[InterfaceSizes, Sequence[str]] = ((length + count, sum(block["rope_axes_dims"])), ("float32",))
        inputs = {
            "hidden_states": latents, "encoder_hidden_states": ((1, length, "*"), FLOATS),
            "pooled_projections": ((1, "*"), FLOATS), "timestep": ((1,), FLOATS), "rotary_emb_cos": table,
            "rotary_emb_sin": table, **({"guidance": ((1,), FLOATS)} if has_guidance else {}),
        }  # fmt: skip
        return {
            "text_encoder": Interface(
                {"input_ids": ((1, CLIP_TOKENS), ("int32",))}, {"pooler_output": ((1, "*"), FLOATS)}
            ),
            "text_encoder_2": Interface(
                {"input_ids": ((1, length), ("int32",))}, {"last_hidden_state": ((1, length, "*"), FLOATS)}
            ),
            "transformer": Interface(inputs, {"output": latents}),
            **autoencoder(_CHANNELS, pixels, FACTOR),
        }


def _vector(model: Any) -> Any:
    return modules.PooledTextEncoder(model), {"input_ids": example_text(model, CLIP_TOKENS)}, ("pooler_output",)

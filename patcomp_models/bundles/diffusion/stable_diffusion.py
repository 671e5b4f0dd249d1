"""Stable Diffusion 1, 2 and XL: a UNet and texts of CLIP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import example_text, noise
from patcomp_models.bundles.diffusion.variant import CLIP_TOKENS, PipelineVariant
from patcomp_models.bundles.kind import Component
from patcomp_models.errors import BundleError

CHANNELS = 4
"""Of the latents; fixed in Swift."""
FACTOR = 8
"""Pixels of an image for a latent; fixed in Swift."""
_PREDICTIONS = ("epsilon", "v_prediction")
_SAFETY = (
    "safety_checker: left out, because Swift has no place for it; an app that shows images to others checks them itself"
)


class StableDiffusion(PipelineVariant):
    """Stable Diffusion 1 and 2."""

    pipelines = ("StableDiffusionPipeline",)
    type = "stable-diffusion"
    for_swift = True
    parts: ClassVar[tuple[str, ...]] = ("text_encoder", "unet")
    left_out: ClassVar[Mapping[str, str]] = {
        "safety_checker": _SAFETY,
        "image_encoder": "image_encoder: left out; it is for images as prompts (IP-Adapter)",
    }

    def check(self) -> None:
        super().check()
        unet, scheduler = self.config("unet"), self.config("scheduler")
        if unet["in_channels"] != CHANNELS or self.factor != FACTOR:
            raise BundleError(
                f"the UNet takes {unet['in_channels']} channels and the autoencoder divides by {self.factor}; Swift "
                f"fills {CHANNELS} channels of images divided by {FACTOR} (pipelines for inpainting have more)"
            )
        if unet.get("time_cond_proj_dim") is not None:
            raise BundleError("the UNet takes the guidance as an input (time_cond_proj_dim), which Swift does not give")
        if scheduler.get("prediction_type", _PREDICTIONS[0]) not in _PREDICTIONS:
            raise BundleError(
                f"the scheduler's prediction_type is {scheduler['prediction_type']}; Swift knows "
                f"{' and '.join(_PREDICTIONS)}"
            )

    def components(self) -> Sequence[Component]:
        return [
            self.component("text_encoder", "text_encoder", self._text_encoder),
            self.component("unet", "unet", self._unet),
            *self.autoencoder(CHANNELS),
        ]

    def _text_encoder(self, model: Any) -> Any:
        ids = example_text(model, model.config.max_position_embeddings)
        return modules.TextEncoder(model), {"input_ids": ids}, ("last_hidden_state",)

    def _unet(self, model: Any) -> Any:
        side = self.size // self.factor
        inputs = {
            "sample": noise(2, CHANNELS, side, side).to(model.dtype),
            "timestep": torch.full((2,), 500.0, dtype=model.dtype),
            "encoder_hidden_states": noise(2, CLIP_TOKENS, model.config.cross_attention_dim).to(model.dtype),
            **self.added(model),
        }
        names = self.arguments(inputs)
        return modules.Denoiser(model, names), inputs, ("noise_pred",)

    def added(self, model: Any) -> dict[str, torch.Tensor]:
        """Further inputs of the UNet."""
        return {}

    def block(self) -> Mapping[str, Any]:
        scheduler, autoencoder = self.config("scheduler"), self.config("vae")
        noise = {"training_steps": "num_train_timesteps", **{name: name for name in
                 ("beta_start", "beta_end", "beta_schedule")}}  # fmt: skip
        block: dict[str, Any] = {
            "type": self.type,
            "prediction_type": scheduler.get("prediction_type", _PREDICTIONS[0]),
            "image_size": self.size,
            "encoder_scale_factor": autoencoder["scaling_factor"],
            "decoder_scale_factor": autoencoder["scaling_factor"],
            "default_guidance_scale": 7.5,
            "default_steps": 50,
        }
        if all(name in scheduler for name in noise.values()):
            block["scheduler"] = {key: scheduler[name] for key, name in noise.items()}
        return block

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels = int(block.get("image_size", 512))
        side = pixels // FACTOR
        return {
            "text_encoder": Interface(
                {"input_ids": ((1, "*"), ("int32",))}, {"last_hidden_state": ((1, "*", "*"), FLOATS)}, False
            ),
            "unet": Interface(
                {"sample": ((2, CHANNELS, side, side), FLOATS), "timestep": ((2,), FLOATS),
                 "encoder_hidden_states": ((2, "*", "*"), FLOATS)},
                {"noise_pred": ((2, CHANNELS, side, side), FLOATS)}, False,
            ),
            **autoencoder(CHANNELS, pixels, FACTOR),
        }  # fmt: skip


class StableDiffusionXL(StableDiffusion):
    """Stable Diffusion XL: two text encoders, and the sizes of the image as an input of the UNet."""

    pipelines = ("StableDiffusionXLPipeline",)
    type = "stable-diffusion-xl"
    for_swift = False
    parts = ("text_encoder", "text_encoder_2", "unet")
    left_out: ClassVar[Mapping[str, str]] = {"image_encoder": StableDiffusion.left_out["image_encoder"]}
    clip_tokenizers = ("tokenizer", "tokenizer_2")
    renamed: ClassVar[Mapping[str, str]] = {
        "text_embeds": "added_cond_kwargs.text_embeds", "time_ids": "added_cond_kwargs.time_ids",
    }  # fmt: skip
    in_float32 = ("vae",)

    def components(self) -> Sequence[Component]:
        first, *others = super().components()
        return [first, self.component("text_encoder_2", "text_encoder_2", penultimate), *others]

    def _text_encoder(self, model: Any) -> Any:
        return penultimate(model)

    def added(self, model: Any) -> dict[str, torch.Tensor]:
        width = self.config("text_encoder_2")["projection_dim"]
        sizes = torch.tensor([[self.size, self.size, 0, 0, self.size, self.size]] * 2)
        return {"text_embeds": noise(2, width).to(model.dtype), "time_ids": sizes.to(model.dtype)}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        found = dict(super().interfaces(block))
        words = found["text_encoder"].inputs
        unet = found["unet"]
        further: dict[str, tuple[InterfaceSizes, Sequence[str]]] = {
            "text_embeds": ((2, "*"), FLOATS),
            "time_ids": ((2, 6), FLOATS),
        }
        return found | {
            "text_encoder": Interface(words, {"hidden_embeds": ((1, "*", "*"), FLOATS)}, True),
            "text_encoder_2": two_outputs(),
            "unet": Interface({**unet.inputs, **further}, unet.outputs, True),
        }


def penultimate(model: Any) -> Any:
    """A text encoder of Stable Diffusion XL or 3."""
    module = modules.PenultimateTextEncoder(model)
    inputs = {"input_ids": example_text(model, model.config.max_position_embeddings)}
    with torch.no_grad():
        count = len(module(**inputs))
    return module, inputs, ("hidden_embeds", "pooled_outputs")[:count]


def two_outputs() -> Interface:
    """What a text encoder with a projection takes and gives."""
    return Interface(
        {"input_ids": ((1, CLIP_TOKENS), ("int32",))},
        {"hidden_embeds": ((1, CLIP_TOKENS, "*"), FLOATS), "pooled_outputs": ((1, "*"), FLOATS)}, False,
    )  # fmt: skip


def autoencoder(channels: int, pixels: int, factor: int) -> dict[str, Interface]:
    """What the halves of an autoencoder take and give, also for images of half the size."""
    found = {}
    for end, size in (("", pixels), ("_half", pixels // 2)):
        latents = ((1, channels, size // factor, size // factor), FLOATS)
        image = ((1, 3, size, size), FLOATS)
        found[f"vae_decoder{end}"] = Interface({"z": latents}, {"image": image}, False)
        found[f"vae_encoder{end}"] = Interface({"image": image}, {"latent_params": latents}, False)
    return found

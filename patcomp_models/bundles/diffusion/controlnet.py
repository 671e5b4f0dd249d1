"""Stable Diffusion with a ControlNet, an image of edges, depth or poses that the result follows. For other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import noise
from patcomp_models.bundles.diffusion.stable_diffusion import StableDiffusion
from patcomp_models.errors import BundleError


class StableDiffusionControlNet(StableDiffusion):
    """ControlNet and UNet in one asset, `Unet`, which takes the image and its weight as two further inputs."""

    pipelines = ("StableDiffusionControlNetPipeline",)
    type = "stable-diffusion-controlnet"
    for_swift = False
    parts = ("text_encoder", "controlnet", "unet")
    assets: ClassVar[tuple[str, ...]] = ("text_encoder", "unet")
    takes_image = True

    def check(self) -> None:
        super().check()
        config = self.config("controlnet")
        if config.get("global_pool_conditions"):
            raise BundleError("the ControlNet pools its conditions (global_pool_conditions), which is not supported")
        if config.get("conditioning_channels", 3) != 3:
            raise BundleError(f"the ControlNet takes {config['conditioning_channels']} channels, and must take 3")

    def _unet(self, model: Any) -> Any:
        from patcomp_models.bundles.loading import model_of

        network = model_of(self.folder / "controlnet", *self.class_of("controlnet"), self.dtype)
        _, inputs, outputs = super()._unet(model)
        return modules.ControlledUnet(model, network), inputs, outputs

    def added(self, model: Any) -> dict[str, Tensor]:
        image = noise(2, 3, self.size, self.size).to(model.dtype)
        return {"controlnet_cond": image, "conditioning_scale": torch.ones(1, dtype=model.dtype)}

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        names = ("controlnet_cond", "conditioning_scale")  # the stand-in of the ControlNet passes them on
        passed = dict(zip(names, arguments["down_block_additional_residuals"], strict=True))
        return {**super().inputs(arguments, config), **passed}

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        found, pixels = dict(super().interfaces(block)), int(block.get("image_size", 512))
        unet = found["unet"]
        further = {"controlnet_cond": ((2, 3, pixels, pixels), FLOATS), "conditioning_scale": ((1,), FLOATS)}
        return found | {"unet": Interface({**unet.inputs, **further}, unet.outputs)}

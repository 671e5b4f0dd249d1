"""What pipelines that make videos have in common: height, width and frames, and the decoder of all frames."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import noise
from patcomp_models.bundles.diffusion.variant import PipelineVariant
from patcomp_models.bundles.kind import Component
from patcomp_models.errors import BundleError


class Video(PipelineVariant):
    """A pipeline from texts to videos. The bundle has no encoder of videos, because a text needs none."""

    makes = "video"
    clip_tokenizers = ()
    block_counts = ("image_size", "image_width", "frames", "latent_channels", "latent_factor", "latent_frame_factor")
    usual_width: ClassVar[int]
    usual_frames: ClassVar[int]
    frame_rate: ClassVar[int]
    """Frames a second."""

    @property
    @abstractmethod
    def frame_factor(self) -> int:
        """Frames of a video for a latent, besides the first one."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """Of the latents."""

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """The number of frames, the height and the width."""
        return self.frames or self.usual_frames, self.size, self.width or self.usual_width

    @property
    def latents(self) -> tuple[int, int, int, int]:
        """The channels, frames, height and width of the latents."""
        frames, height, width = self.sizes
        return (
            self.channels,
            (frames - 1) // self.frame_factor + 1,
            height // self.factor,
            width // self.factor,
        )

    def check_sizes(self) -> None:
        if self.half:
            raise BundleError(f"half is an option for images, and {self.pipelines[0]} makes a video; leave it out")
        given = {"image_size": self.image_size, "width": self.width, "frames": self.frames}
        for name, value in given.items():
            if value is not None and value <= 0:
                raise BundleError(f"{name} is {value}, and must be above zero")
        frames, *sides = self.sizes
        for name, value in zip(("image_size", "width"), sides, strict=True):
            if value % self.multiple:
                raise BundleError(f"{name} is {value}, and must be a multiple of {self.multiple}, in pixels")
        if frames % self.frame_factor != 1 % self.frame_factor:
            raise BundleError(f"frames is {frames}, and must be a multiple of {self.frame_factor} and one more")

    def decoder(self, *, is_timed: bool = False) -> Component:
        """The half of the autoencoder that makes the video.

        Args:
            is_timed: whether it takes the time of the noise that is left in the latents.
        """

        def make(model: Any) -> Any:
            inputs = {"z": noise(1, *self.latents).to(model.dtype)}
            if is_timed:
                return modules.TimedDecoder(model), {**inputs, "timestep": torch.full((1,), 0.05)}, ("video",)
            return modules.LatentDecoder(model), inputs, ("video",)

        return self.component("vae_decoder", "vae", make)

    def sizes_in_block(self) -> dict[str, Any]:
        """The sizes, for the block `diffusion`."""
        frames, height, width = self.sizes
        return {
            "image_size": height, "image_width": width, "frames": frames, "frame_rate": self.frame_rate,
            "latent_channels": self.channels, "latent_factor": self.factor, "latent_frame_factor": self.frame_factor,
        }  # fmt: skip

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        sizes = {"height": block["image_size"], "width": block["image_width"], "num_frames": block["frames"]}
        return {**super().call(block), **sizes}

    @classmethod
    def latents_of(cls, block: Mapping[str, Any]) -> tuple[int, int, int, int]:
        """The channels, frames, height and width of the latents, by the block `diffusion`."""
        factor = block["latent_factor"]
        return (
            block["latent_channels"], (block["frames"] - 1) // block["latent_frame_factor"] + 1,
            block["image_size"] // factor, block["image_width"] // factor,
        )  # fmt: skip

    @classmethod
    def decoder_interface(cls, block: Mapping[str, Any]) -> Interface:
        """What the decoder takes and gives."""
        video: InterfaceSizes = (1, 3, block["frames"], block["image_size"], block["image_width"])
        inputs: dict[str, tuple[InterfaceSizes, Sequence[str]]] = {"z": ((1, *cls.latents_of(block)), FLOATS)}
        if block.get("timestep_conditioning"):
            inputs["timestep"] = ((1,), ("float32",))
        return Interface(inputs, {"video": (video, FLOATS)})

"""The pipelines of diffusers that become bundles."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.bundles.diffusion.controlnet import StableDiffusionControlNet
from patcomp.bundles.diffusion.flux import Flux
from patcomp.bundles.diffusion.flux2 import Flux2Klein
from patcomp.bundles.diffusion.stable_diffusion import StableDiffusion, StableDiffusionXL
from patcomp.bundles.diffusion.stable_diffusion_3 import StableDiffusion3
from patcomp.bundles.diffusion.variant import Variant

VARIANTS: Sequence[type[Variant]] = (
    StableDiffusion, StableDiffusion3, Flux2Klein, StableDiffusionXL, StableDiffusionControlNet, Flux,
)  # fmt: skip


def variant_of(pipeline: object) -> type[Variant] | None:
    """The variant of a pipeline, by the name of its class in diffusers; None if it becomes no bundle."""
    return next((each for each in VARIANTS if pipeline in each.pipelines), None)

"""The pipelines of diffusers that become bundles."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp_models.bundles.diffusion.controlnet import StableDiffusionControlNet
from patcomp_models.bundles.diffusion.flux import Flux
from patcomp_models.bundles.diffusion.flux2 import Flux2Klein
from patcomp_models.bundles.diffusion.ltx_video import LtxVideo
from patcomp_models.bundles.diffusion.qwen_image import QwenImage
from patcomp_models.bundles.diffusion.sana import Sana, SanaSprint
from patcomp_models.bundles.diffusion.stable_audio import StableAudio
from patcomp_models.bundles.diffusion.stable_diffusion import StableDiffusion, StableDiffusionXL
from patcomp_models.bundles.diffusion.stable_diffusion_3 import StableDiffusion3
from patcomp_models.bundles.diffusion.variant import PipelineVariant
from patcomp_models.bundles.diffusion.wan import Wan
from patcomp_models.bundles.diffusion.z_image import ZImage

VARIANTS: Sequence[type[PipelineVariant]] = (
    StableDiffusion, StableDiffusion3, Flux2Klein, SanaSprint, StableDiffusionXL, StableDiffusionControlNet, Flux,
    QwenImage, ZImage, Sana, Wan, LtxVideo, StableAudio,
)  # fmt: skip


def variant_of(pipeline: object) -> type[PipelineVariant] | None:
    """The variant of a pipeline, by the name of its class in diffusers; None if it becomes no bundle."""
    return next((each for each in VARIANTS if pipeline in each.pipelines), None)

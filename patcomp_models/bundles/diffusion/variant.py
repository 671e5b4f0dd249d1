"""What pipelines of diffusers have in common: their folder, components and metadata."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import Interface
from patcomp_models.bundle_folders.revisions import OLD, field_problems
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import noise
from patcomp_models.bundles.kind import Component
from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import BundleError
from patcomp_models.tasks.entries import Entry

CLIP_TOKENS = 77
"""The length of CLIP's texts."""
FILES = {
    "text_encoder": "TextEncoder", "text_encoder_2": "TextEncoder2", "unet": "Unet", "transformer": "Transformer",
    "transformer_2": "Transformer2", "projection_model": "ProjectionModel", "vae_decoder": "VAEDecoder",
    "vae_encoder": "VAEEncoder",
}  # fmt: skip
"""The files of the roles, as Apple's Swift package names them, without `.aimodel`."""

Make = Callable[[Any], tuple[nn.Module, Mapping[str, Tensor], tuple[str, ...]]]
"""Of a loaded model: a function of it, example inputs by name, and the names of the outputs."""


@dataclass(frozen=True)
class PipelineVariant(ABC):
    """A pipeline of diffusers, in a folder.

    Attributes:
        folder: with `model_index.json`.
        dtype: of the weights.
        image_size: the side of the image in pixels, if the user chooses it.
        half: whether assets for images of half the size are added.
        width: of a video in pixels, whose height is `image_size`, if the user chooses it.
        frames: of a video, if the user chooses it.
        revision: of Apple's Swift package that runs the bundle, one of `bundle_folders.revisions.REVISIONS`.
    """

    pipelines: ClassVar[tuple[str, ...]]
    """The classes of diffusers."""
    type: ClassVar[str]
    """The `type` of `metadata.json`; one that Swift has a pipeline for, or the assets are for other hosts."""
    for_swift: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]]
    """The folders of the models; each pipeline also has `vae`, `tokenizer` and `scheduler`."""
    left_out: ClassVar[Mapping[str, str]] = {}
    """Folders of models that become no asset, and what a note says about it."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Arguments of the denoiser by the inputs of the asset, where the names differ."""
    patch: ClassVar[int] = 1
    """The latents along the side of what the denoiser takes as one."""
    usual_size: ClassVar[int | None] = None
    """The side of the image in pixels, where the configuration does not say it."""
    in_float32: ClassVar[tuple[str, ...]] = ()
    """The parts whose weights stay in float32, because numbers inside them exceed float16."""
    layers: ClassVar[tuple[int, ...]] = ()
    """Of the hidden states that the text encoder gives side by side."""
    clip_tokenizers: ClassVar[tuple[str, ...]] = ("tokenizer",)
    """The folders of tokenizers of CLIP."""
    assets: ClassVar[tuple[str, ...]] = ()
    """The roles of the assets that the parts become; by default each becomes one."""
    longest_text: ClassVar[int | None] = None
    """The tokens of a text that diffusers is told, if the pipeline takes a number and it is always the same."""
    takes_image: ClassVar[bool] = False
    """Whether the pipeline takes an image beside the text."""
    reference: ClassVar[str | None] = None
    """The function of the denoiser for a text and an image that it need not have, if there is one."""
    negative_prompt: ClassVar[bool] = True
    """Whether the pipeline takes a negative prompt."""
    guidance: ClassVar[str] = "guidance_scale"
    """The argument of the pipeline for the guidance; `"true_cfg_scale"` counts with a negative prompt only."""
    positional: ClassVar[tuple[str, ...]] = ("sample", "timestep")
    """The inputs of the denoiser's asset that the pipeline gives by position."""
    takes_lists: ClassVar[bool] = False
    """Whether the denoiser takes lists of images and of texts, and each call of the asset one of each."""
    no_guidance: ClassVar[float] = 1.0
    """The guidance up to which a negative prompt has no effect."""
    cuts_texts: ClassVar[bool] = False
    """Whether the pipeline drops what the text encoder gives for tokens beyond the length of its asset."""
    makes: ClassVar[str] = "image"
    """What the pipeline makes: `"image"`, `"video"` or `"sound"`."""
    block_counts: ClassVar[tuple[str, ...]] = ()
    """The whole numbers that the block `diffusion` has for this pipeline."""
    halves: ClassVar[tuple[Callable[[Any], nn.Module], Callable[[Any], nn.Module]]] = (
        modules.LatentDecoder,
        modules.MeanEncoder,
    )
    """The functions of the autoencoder."""
    by_name: ClassVar[Mapping[str, str]] = {}
    """The names by which Swift finds files, by role."""
    sidecars: ClassVar[Sequence[str]] = ()
    """Files that Swift reads beside the assets."""

    folder: Path
    dtype: str
    image_size: int | None = None
    half: bool = False
    width: int | None = None
    frames: int | None = None
    revision: str = OLD

    @abstractmethod
    def components(self) -> Sequence[Component]:
        """The parts, in the order in which they are converted."""

    @abstractmethod
    def block(self) -> Mapping[str, Any]:
        """The block `diffusion` of `metadata.json`."""

    @classmethod
    @abstractmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        """What the functions of the roles take and give.

        Args:
            block: the block `diffusion` of `metadata.json`.
        """

    @classmethod
    def functions(cls, block: Mapping[str, Any], revision: str) -> Mapping[str, Mapping[str, Interface]]:
        """The functions of the roles, by role and name; an asset has the first, and may have the others.

        Args:
            block: the block `diffusion` of `metadata.json`.
            revision: of Apple's Swift package.
        """
        return {role: {"main": interface} for role, interface in cls.interfaces(block).items()}

    @classmethod
    def block_problems(cls, block: Mapping[str, Any], revision: str) -> list[Problem]:
        """What else a revision of Apple's Swift package would misread of the block `diffusion`."""
        return []

    @classmethod
    def given_image(cls, image: np.ndarray) -> Any:
        """An image, (size, size, 3) from 0 to 1, as the pipeline of diffusers takes it."""
        return torch.from_numpy(np.array(image, np.float32)).permute(2, 0, 1)[None]

    @classmethod
    def further_parts(cls, facts: Mapping[str, Any]) -> tuple[str, ...]:
        """The folders of further models that become assets.

        Args:
            facts: `model_index.json`, or the block `diffusion` of `metadata.json`.
        """
        return ()

    @classmethod
    def call(cls, block: Mapping[str, Any]) -> Mapping[str, Any]:
        """Further arguments of the pipeline of diffusers, with which it computes what the assets do.

        Args:
            block: the block `diffusion` of `metadata.json`.
        """
        length = {} if cls.longest_text is None else {"max_sequence_length": cls.longest_text}
        return {"height": block["image_size"], "width": block["image_size"], **length}

    @classmethod
    def of_steps(cls, block: Mapping[str, Any], steps: int) -> Mapping[str, Any]:
        """Further arguments of the pipeline of diffusers for a number of steps.

        Args:
            block: the block `diffusion` of `metadata.json`.
            steps: of the scheduler.
        """
        return {}

    @classmethod
    def arguments(cls, inputs: Iterable[str]) -> list[str]:
        """The arguments of the denoiser for the inputs of its asset."""
        return [cls.renamed.get(name, name) for name in inputs]

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        """The inputs of the denoiser's asset, of the arguments that diffusers gives the model.

        Args:
            arguments: by name; an entry of a dictionary is `"added_cond_kwargs.time_ids"`, too.
            config: of the model.
        """
        names = {argument: name for name, argument in cls.renamed.items()}
        return {names.get(name, name): value for name, value in arguments.items() if isinstance(value, Tensor)}

    @classmethod
    def statistics(cls, bundle: Path) -> Mapping[str, Tensor]:
        """The statistics by which the pipeline scales latents, from files beside the assets."""
        return {}

    @classmethod
    def ratios(cls, config: Mapping[str, Any]) -> Mapping[str, int]:
        """What an autoencoder computes of its configuration, and the pipeline asks for."""
        return {}

    def write_files(self, bundle: Path) -> None:  # noqa: B027 (most variants have no such files)
        """Write the files that the variant has beside assets and tokenizers."""

    # ---- the folder ----------------------------------------------------------------------------------

    @cached_property
    def index(self) -> Mapping[str, Any]:
        """The content of `model_index.json`."""
        return object_in(self.folder / "model_index.json")

    def config(self, part: str) -> dict[str, Any]:
        """The configuration of a part.

        Raises:
            BundleError: it is missing, or no JSON.
        """
        file = self.folder / part / ("scheduler_config.json" if part == "scheduler" else "config.json")
        try:
            return object_in(file)
        except FileNotFoundError:
            raise BundleError(f"there is no {str(file)!r}; give the whole pipeline, as diffusers saves it") from None

    def tokenizers(self) -> list[str]:
        """The folders of the tokenizers that the assets need."""
        left = {f"tokenizer{part.removeprefix('text_encoder')}" for part in self.left_out}
        return [name for name in self.index if is_tokenizer(name) and self.has(name) and name not in left]

    def has(self, part: str) -> bool:
        """Whether the pipeline has a part."""
        entry = self.index.get(part)
        return isinstance(entry, list) and len(entry) == 2 and entry[0] is not None

    def class_of(self, part: str) -> tuple[str, str]:
        """The library and the name of the class of a model.

        Raises:
            BundleError: the pipeline names none.
        """
        if not self.has(part):
            raise BundleError(f"{str(self.folder / 'model_index.json')!r} names no class for {part}")
        library, name = self.index[part]
        return "transformers" if library == "transformers" else "diffusers", name  # or a pipeline of diffusers

    def notes(self) -> list[str]:
        """What is left out, one sentence each."""
        return [note for part, note in self.left_out.items() if self.has(part)]

    # ---- sizes ---------------------------------------------------------------------------------------

    @cached_property
    def factor(self) -> int:
        """Pixels of an image for a latent, in each direction."""
        return int(2 ** (len(self.config("vae")["block_out_channels"]) - 1))

    @property
    def multiple(self) -> int:
        """What the side of an image is a multiple of."""
        return self.factor * self.patch

    @cached_property
    def size(self) -> int:
        """The side of the image, in pixels."""
        denoiser = "unet" if "unet" in self.parts else "transformer"
        return self.image_size or self.usual_size or int(self.config(denoiser)["sample_size"]) * self.factor

    def check(self) -> None:
        """Check what can be checked before a model is loaded.

        Raises:
            BundleError: a part is missing, or an option does not fit.
        """
        for part in (*self.parts, *self.further_parts(self.index), "vae", "tokenizer", "scheduler"):
            if not (self.folder / part).is_dir():
                raise BundleError(
                    f"{str(self.folder)!r} has no folder {part}; give the whole pipeline, as diffusers saves it"
                )
        if not self.has("scheduler"):
            raise BundleError(f"{str(self.folder / 'model_index.json')!r} names no scheduler")
        if self.for_swift and self.dtype not in ("float16", "float32"):
            raise BundleError(f"Swift fills inputs of float16 and float32, got the dtype {self.dtype}; choose float16")
        self.check_sizes()
        if self.revision == OLD:
            return
        if not self.for_swift:
            raise BundleError(
                f"revision is an option for Apple's package, which has no pipeline of {self.pipelines[0]}"
            )
        for each in field_problems({"kind": "diffusion", "diffusion": {"type": self.type}}, self.revision):
            raise BundleError(f"revision {self.revision} of Apple's package would refuse the bundle: {each.message}")

    def check_sizes(self) -> None:
        """Check the options for sizes.

        Raises:
            BundleError: one does not fit.
        """
        for name in ("width", "frames"):
            if getattr(self, name) is not None:
                raise BundleError(f"{name} is an option for videos, and {self.pipelines[0]} makes an image")
        multiple = self.multiple * (2 if self.half else 1)
        size = self.image_size if self.image_size is not None else self.size
        if isinstance(size, bool) or not isinstance(size, int) or size <= 0 or size % multiple:
            raise BundleError(f"image_size is {size}, and must be a multiple of {multiple}, in pixels")

    # ---- components ----------------------------------------------------------------------------------

    def component(self, role: str, part: str, make: Make, file: str | None = None) -> Component:
        """A component.

        Args:
            role: by which `metadata.json` names the asset.
            part: the folder of the model.
            make: the function of the model.
            file: the name of the asset, without `.aimodel`; by default that of the role.
        """
        is_vae = part == "vae"

        def entries() -> Sequence[Entry]:
            from patcomp_models.bundles.loading import model_of

            library, name = self.class_of(part)
            dtype = "float32" if part in self.in_float32 else self.dtype
            module, inputs, outputs = make(model_of(self.folder / part, library, name, dtype))
            return [Entry("main", module.eval(), inputs, outputs)]

        return Component(role, f"{file or FILES[role]}.aimodel", entries, compressed=not is_vae)

    def autoencoder(self, channels: int) -> list[Component]:
        """The two halves of the autoencoder, which are never compressed.

        Args:
            channels: of the latents.
        """

        def decoder(size: int) -> Make:
            side = size // self.factor
            return lambda model: (
                self.halves[0](model),
                {"z": noise(1, channels, side, side).to(model.dtype)},
                ("image",),
            )

        def encoder(size: int) -> Make:
            return lambda model: (
                self.halves[1](model), {"image": noise(1, 3, size, size).to(model.dtype)}, ("latent_params",)
            )  # fmt: skip

        made = []
        for role, make in (("vae_decoder", decoder), ("vae_encoder", encoder)):
            made.append(self.component(role, "vae", make(self.size)))
            if self.half:
                made.append(self.component(f"{role}_half", "vae", make(self.size // 2), f"{FILES[role]}_half"))
        return made


def is_tokenizer(name: str) -> bool:
    """Whether a name is that of the folder of a tokenizer: `tokenizer`, `tokenizer_2`."""
    return re.fullmatch(r"tokenizer(_\d)?", name) is not None


def scale_factors(vae: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a configuration by which the host scales and shifts latents."""
    factor = vae["scaling_factor"]
    shift = vae.get("shift_factor") or 0.0
    return {"encoder_scale_factor": factor, "decoder_scale_factor": factor, "decoder_shift_factor": shift}


def latent_statistics(vae: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a configuration, one a channel, by which the host scales latents."""
    return {name: list(vae[name]) for name in ("latents_mean", "latents_std")}


def with_rows(value: Tensor, count: int) -> Tensor:
    """A tensor (1, rows, ...) with as many rows: its first ones, or zeros behind its own."""
    lacking = value.new_zeros(1, max(count - value.shape[1], 0), *value.shape[2:])
    return torch.cat([value[:, :count], lacking], 1)

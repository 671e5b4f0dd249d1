"""Pipelines of diffusers that make images, videos and sounds, for Apple's Swift package and for other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from patcomp.errors import Problem
from patcomp_models.bundle_folders.revisions import OLD
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.diffusion.checking import contract_problems, record_problems
from patcomp_models.bundles.diffusion.record import record_of
from patcomp_models.bundles.diffusion.tokenizer_files import write_tokenizer
from patcomp_models.bundles.diffusion.variant import PipelineVariant
from patcomp_models.bundles.diffusion.variants import VARIANTS, variant_of
from patcomp_models.bundles.kind import Component
from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import BundleError


@dataclass(frozen=True)
class Diffusion(KindOfComponents):
    """The pipelines that Apple's Swift package has: Stable Diffusion, FLUX.2 klein, SANA-Sprint.

    Attributes:
        image_size: the side of the image, in pixels; by default that of the pipeline.
        half: whether assets for images of half the size are added, also to decode a large image in tiles.
        width: of a video, in pixels, whose height is `image_size`; by default that of the pipeline.
        frames: of a video; by default as many as the pipeline makes.
        revision: of Apple's package that runs the bundle. The transformer of FLUX.2 is in the form of this one: places
            of patches instead of rotary tables, and functions for images that a new one follows, from 34ab73d on.
    """

    image_size: int | None = None
    half: bool = False
    width: int | None = None
    frames: int | None = None
    revision: Literal["86b363d", "34ab73d"] = OLD  # type: ignore[assignment]

    name: ClassVar[str] = "diffusion"
    holds: ClassVar[str] = ", ".join(name for each in VARIANTS if each.for_swift for name in each.pipelines)
    for_swift: ClassVar[bool] = True

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        variant = variant_of(config.get("_class_name"))
        return variant is not None and variant.for_swift == cls.for_swift

    def components(self) -> Sequence[Component]:
        self.variant.check()
        return self.variant.components()

    def metadata(self) -> Mapping[str, Any]:
        return {
            "diffusion": dict(self.variant.block()),
            "diffusers": record_of(self.variant),
            "notes": self.notes(),
        }

    def notes(self) -> Sequence[str]:
        return self.variant.notes()

    def write_files(self, bundle: Path) -> None:
        for name in self.variant.tokenizers():
            write_tokenizer(
                self.folder / name, bundle / name, is_clip=name in self.variant.clip_tokenizers,
                is_gpt2=self.variant.type == "flux2",
            )  # fmt: skip
        self.variant.write_files(bundle)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        wrong = contract_problems(bundle, metadata, for_swift=cls.for_swift, revision=revision)
        return wrong or record_problems(bundle, metadata)

    @cached_property
    def variant(self) -> PipelineVariant:
        """The pipeline of the folder."""
        file = self.folder / "model_index.json"
        name = object_in(file).get("_class_name") if file.is_file() else "no pipeline"
        found = variant_of(name)
        if found is None or found.for_swift != self.for_swift:
            raise BundleError(f"{str(self.folder)!r} holds {name}; bundles of the kind {self.name} hold {self.holds}")
        return found(self.folder, self.dtype, self.image_size, self.half, self.width, self.frames, self.revision)


class DiffusionForOtherHosts(Diffusion):
    """Pipelines for which Apple's Swift package has no loop; the metadata is the same."""

    name: ClassVar[str] = "diffusion_for_other_hosts"
    holds: ClassVar[str] = ", ".join(name for each in VARIANTS if not each.for_swift for name in each.pipelines)
    for_swift: ClassVar[bool] = False

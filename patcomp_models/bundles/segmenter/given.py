"""EfficientSAM (Xiong et al. 2023, arXiv:2312.00863), which is no folder of transformers and is given as an object."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from patcomp.emit.asset import Writer
from patcomp.errors import Problem
from patcomp.targets import Target
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component, Conversion, check_choices
from patcomp_models.bundles.kinds.segmenter import FILE, Segmenter, points_entry
from patcomp_models.checkpoints.loading import DTYPES
from patcomp_models.errors import BundleError
from patcomp_models.options import Progress
from patcomp_models.tasks.entries import Entry

_LABELS = {
    -1: "invalid_points",
    1: "point_embeddings",
    2: "bbox_top_left_embeddings",
    3: "bbox_bottom_right_embeddings",
}
"""The embedding that each label of a point adds to that of its place."""
_PARTS = ("image_encoder.img_size", "prompt_encoder.pe_layer", "decoder_max_num_input_points", "mask_decoder",
          *(f"prompt_encoder.{name}" for name in _LABELS.values()))  # fmt: skip


def convert_segmenter(
    model: nn.Module,
    *,
    out: str | Path,
    queries: int = 1,
    points: int = 6,
    dtype: Literal["float16", "bfloat16", "float32"] = "float16",
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    compress: str | Path | Mapping[str, Any] | None = None,
    verify: bool = True,
    name: str | None = None,
    progress: Progress | None = None,
    writer: Writer | None = None,
) -> Path:
    """Convert a segmenter of points that is given as an object to a bundle, as `convert_bundle` does with folders.

    Args:
        model: EfficientSAM, as `build_efficient_sam_vitt()` of the package `efficient_sam` makes it. It is not changed.
        out: the folder of the bundle, which must not exist. Nothing is left there after an error.
        queries: how many objects one call separates.
        points: for each of them, how many points it takes; unused ones have the label -1.
        dtype, target, compress, verify, progress, writer: as for `convert_bundle`.
        name: of the bundle; by default that of the model's class.

    Returns:
        The folder of the bundle.

    Raises:
        BundleError: the model is another one, or takes fewer points.
        UnsupportedError: the model has ops that cannot be converted; the message lists all of them.
        VerificationError: the program computes other numbers than PyTorch.
    """
    place = Path(out)
    check_choices(place, dtype, name)
    _check(model, queries, points)
    form = _OfObject(Path(type(model).__name__), dtype, model, queries, points)
    form.convert(Conversion(place, target, compress, verify, name, progress, writer))
    return place


def _check(model: Any, queries: int, points: int) -> None:
    for part in _PARTS:
        try:
            attrgetter(part)(model)
        except AttributeError:
            raise BundleError(
                f"{type(model).__name__} has no {part}, and convert_segmenter takes EfficientSAM; a folder of SAM, "
                "SAM 2 or SAM 3 of transformers is for convert_bundle"
            ) from None
    if queries < 1 or points < 1:
        raise BundleError(f"queries is {queries} and points is {points}, and both must be at least 1")
    if points > model.decoder_max_num_input_points:
        raise BundleError(f"points is {points}, and the model takes {model.decoder_max_num_input_points} of an object")


@dataclass(frozen=True)
class _OfObject(KindOfComponents):
    """A segmenter that holds its model."""

    model: Any
    queries: int
    points: int

    name: ClassVar[str] = Segmenter.name
    holds: ClassVar[str] = "EfficientSAM"
    is_known_again: ClassVar[bool] = False

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return False

    def components(self) -> Sequence[Component]:
        return [Component("main", FILE, self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        return {"segmenter": {"form": "points"}}

    def write_files(self, bundle: Path) -> None:
        """There are none."""

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        return Segmenter.problems(bundle, metadata, revision)

    def _entries(self) -> list[Entry]:
        dtype = DTYPES[self.dtype]
        module = EfficientPoints(copy.deepcopy(self.model).to(dtype).eval())
        return [points_entry(module, self.model.image_encoder.img_size, dtype, self.queries, self.points)]


class EfficientPoints(nn.Module):
    """Masks of points by EfficientSAM, with the inputs and outputs of `Points`. The model normalises the image itself.

    Args:
        model: EfficientSAM, whose prompt encoder is replaced.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        model.prompt_encoder = EfficientPrompts(model.prompt_encoder)

    def forward(
        self, batched_images: Tensor, batched_points: Tensor, batched_point_labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        masks, scores = self.model(
            batched_images, batched_points, batched_point_labels, scale_to_original_image_size=False
        )
        return masks, scores


class EfficientPrompts(nn.Module):
    """The prompt encoder of EfficientSAM, without writes through a mask. (The number of places in a mask is dynamic.)

    Places are computed in float32 for every type of the weights.
    """

    def __init__(self, encoder: Any):
        super().__init__()
        self.encoder = encoder
        encoder.pe_layer.float()

    def forward(self, coords: Tensor, labels: Tensor) -> Tensor:
        found = self.encoder.pe_layer.forward_with_coords(coords.float() + 0.5, self.encoder.input_image_size)
        for label, name in _LABELS.items():
            weight = getattr(self.encoder, name).weight
            found = torch.where((labels == label)[..., None], found + weight, found)
        return found.to(self.encoder.invalid_points.weight.dtype)

    def get_dense_pe(self) -> Tensor:
        places: Tensor = self.encoder.get_dense_pe()
        return places.to(self.encoder.invalid_points.weight.dtype)

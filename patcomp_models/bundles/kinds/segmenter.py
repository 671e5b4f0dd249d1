"""Segmenters: SAM, SAM-HQ, SAM 2, EdgeTAM and the tracker of SAM 3 by points, SAM 3 by a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.segmenter.contract import (
    POINT_INPUTS,
    POINT_OUTPUTS,
    SEGMENTER_FEATURES,
    TEXT_OUTPUTS,
    TRIO,
    asset_problems,
    clip_tokenizer_problems,
    main_functions,
    trio_problems,
)
from patcomp_models.bundles.segmenter.folders import check_for_texts, json_in, normalisation
from patcomp_models.checkpoints.tokenizers import write_with_pairs
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_CLASSES = {
    "sam": "SamModel", "sam_hq": "SamHQModel", "sam2": "Sam2Model", "sam2_video": "Sam2Model",
    "edgetam": "EdgeTamModel", "edgetam_video": "EdgeTamModel", "sam3": "Sam3Model", "sam3_video": "Sam3Model",
    "sam3_tracker": "Sam3TrackerModel",
}  # fmt: skip
"""The class for images of each type of model; checkpoints for videos hold it, too."""
_OF_TEXT = "Sam3Model"
FILE = "Segmenter.aimodel"


@dataclass(frozen=True)
class Segmenter(KindOfComponents):
    """A segmenter.

    Attributes:
        queries: how many objects one call separates by points.
        points: for each of them, how many points it takes; unused ones have the label -1.
        length: of the text, in tokens.
        functions: 1, or 3 for a text on the Neural Engine: the image, the text and the objects have one each.
    """

    queries: int = 1
    points: int = 6
    length: int = 32
    functions: int = 1

    name: ClassVar[str] = "segmenter"
    holds: ClassVar[str] = "SAM, SAM 2, SAM 3 of transformers"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return str(config.get("model_type")) in _CLASSES

    def components(self) -> Sequence[Component]:
        kind = json_in(self.folder, "config.json").get("model_type")
        if kind not in _CLASSES:
            raise BundleError(f"{str(self.folder)!r} holds {kind!r}, which is no segmenter: {', '.join(_CLASSES)}")
        for option in ("queries", "points", "length"):
            if getattr(self, option) < 1:
                raise BundleError(f"{option} is {getattr(self, option)!r}, and must be a number of at least 1")
        if self.functions not in ((1, 3) if self._is_of_text else (1,)):
            choices = "1 or 3" if self._is_of_text else "1 for a segmenter of points"
            raise BundleError(f"functions is {self.functions!r}, and must be {choices}")
        if self._is_of_text:
            check_for_texts(self.folder)
        else:
            normalisation(self.folder)
        made = self._of_points if not self._is_of_text else self._text if self.functions == 1 else self._trio
        return [Component("main", FILE, made)]

    def device(self) -> str:
        return "neural_engine" if self.functions == 3 else super().device()

    def metadata(self) -> Mapping[str, Any]:
        return {"segmenter": {"form": "text" if self._is_of_text else "points"}}

    def write_files(self, bundle: Path) -> None:
        if self._is_of_text:
            write_with_pairs(self.folder / "tokenizer.json", bundle / "tokenizer" / "tokenizer.json")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        functions, missing = main_functions(bundle, metadata)
        if missing:
            return missing
        if any(name in functions for name in TRIO):
            return [*trio_problems(functions), *clip_tokenizer_problems(bundle)]
        if "main" not in functions:
            return [problem(f"the asset has neither main nor {', '.join(TRIO)}")]
        found = functions["main"]
        of_text = not any("point" in name for name in found.inputs)
        return [*asset_problems(found), *(clip_tokenizer_problems(bundle) if of_text else ())]

    @property
    def _class(self) -> str:
        return _CLASSES[json_in(self.folder, "config.json")["model_type"]]

    @property
    def _is_of_text(self) -> bool:
        return self._class == _OF_TEXT

    def _model(self) -> Any:
        from patcomp_models.bundles.loading import model_of

        return model_of(self.folder, "transformers", self._class, self.dtype)

    def _of_points(self) -> list[Entry]:
        from patcomp_models.bundles.segmenter.modules import Points

        model = self._model()
        side = int(model.config.prompt_encoder_config.image_size)
        points = Points(model, *normalisation(self.folder))
        return [points_entry(points, side, model.dtype, self.queries, self.points)]

    def _text(self) -> list[Entry]:
        from patcomp_models.bundles.segmenter.modules import SegmentByText
        from patcomp_models.tasks.entries import Entry

        model, inputs = self._asked()
        return [Entry("main", SegmentByText(model, model.config.text_config.eos_token_id), inputs, TEXT_OUTPUTS)]

    def _trio(self) -> list[Entry]:
        import torch

        from patcomp_models.bundles.segmenter.modules import DetectByText, ImageEncode, TextEncode
        from patcomp_models.tasks.entries import Entry

        model, inputs = self._asked()
        image, text = ImageEncode(model), TextEncode(model, model.config.text_config.eos_token_id)
        with torch.no_grad():
            features = dict(
                zip(SEGMENTER_FEATURES, (image(inputs["pixel_values"]), text(inputs["input_ids"])), strict=True)
            )
        side = model.config.vision_config.image_size // model.config.vision_config.backbone_config.patch_size
        return [
            Entry("image_encode", image, {"pixel_values": inputs["pixel_values"]}, SEGMENTER_FEATURES[:1]),
            Entry("text_encode", text, {"input_ids": inputs["input_ids"]}, SEGMENTER_FEATURES[1:]),
            Entry("detect", DetectByText(model, side), features, TEXT_OUTPUTS),
        ]

    def _asked(self) -> tuple[Any, dict[str, Any]]:
        """SAM 3, an image and a text."""
        import torch

        model = self._model()
        side, text = int(model.config.vision_config.image_size), model.config.text_config
        if self.length > text.max_position_embeddings:
            raise BundleError(f"length is {self.length}, and the model reads {text.max_position_embeddings} tokens")
        ids = torch.full((1, self.length), text.eos_token_id, dtype=torch.int32)
        ids[0, : min(4, self.length - 1)] = torch.tensor([text.bos_token_id, 5, 7, 9])[: min(4, self.length - 1)].int()
        pixels = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0)).to(model.dtype)
        return model, {"pixel_values": pixels, "input_ids": ids}


def points_entry(module: Any, side: int, dtype: Any, queries: int, points: int) -> Entry:
    """The function of a segmenter of points.

    Args:
        module: takes images, points and labels, and gives masks and their scores.
        side: of the images.
        dtype: of the images.
        queries, points: as for `Segmenter`.
    """
    import torch

    from patcomp_models.tasks.entries import Entry

    draw, shape = torch.Generator().manual_seed(0), (1, queries, points)
    labels = torch.tensor([1.0, 0.0, 2.0, 3.0, -1.0, -1.0])[torch.arange(queries * points) % 6]
    values = (
        torch.rand(1, 3, side, side, generator=draw).to(dtype),
        torch.rand(*shape, 2, generator=draw) * side,
        labels.reshape(shape),
    )
    return Entry("main", module, dict(zip(POINT_INPUTS, values, strict=True)), POINT_OUTPUTS)

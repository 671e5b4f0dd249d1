"""SAM 3 for videos: seven functions in one asset, between which a host keeps the memories of each object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.revisions import TRACKING
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.kinds.segmenter import FILE
from patcomp_models.bundles.segmenter.contract import clip_tokenizer_problems, main_functions
from patcomp_models.bundles.segmenter.folders import check_for_texts, json_in
from patcomp_models.bundles.segmenter.video_contract import VIDEO_FUNCTIONS, video_problems
from patcomp_models.checkpoints.tokenizers import write_with_pairs
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_TYPE = "sam3_video"


@dataclass(frozen=True)
class VideoSegmenter(KindOfComponents):
    """A segmenter of videos, for Apple's Swift package from its later revision on.

    Attributes:
        length: of the text, in tokens.
        memories: of masks, as many as one call may see; by default as many as the model ever keeps.
        pointers: to an object in earlier frames, as many as one call may see. A host drops the oldest beyond them.
        image_size: the side of a frame, in pixels; by default that of the model. Less is quicker, and loses small
            objects.
    """

    length: int = 32
    memories: int | None = None
    pointers: int = 96
    image_size: int | None = None

    name: ClassVar[str] = "video_segmenter"
    holds: ClassVar[str] = "SAM 3 of transformers for videos (Sam3VideoModel), by --kind video_segmenter"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return False  # the folder is that of the segmenter of images, too, which is the usual kind

    def components(self) -> Sequence[Component]:
        kind = json_in(self.folder, "config.json").get("model_type")
        if kind != _TYPE:
            raise BundleError(f"{str(self.folder)!r} holds {kind!r}, and segmenters of videos are made of {_TYPE!r}")
        if self.dtype not in ("float16", "float32"):
            raise BundleError(f"Swift fills inputs of float16 and float32, got the dtype {self.dtype}; choose float16")
        check_for_texts(self.folder)
        tracker, text = self._config.tracker_config, self._config.detector_config.text_config
        least = {
            "length": 1,
            "memories": tracker.max_cond_frame_num + tracker.num_maskmem - 1,
            "pointers": tracker.max_object_pointers_in_encoder,
        }
        for option, count in least.items():
            if (value := getattr(self, option)) is not None and value < count:
                raise BundleError(f"{option} is {value}, and must be at least {count} for this model")
        if self.length > text.max_position_embeddings:
            raise BundleError(f"length is {self.length}, and the model reads {text.max_position_embeddings} tokens")
        return [Component("main", FILE, self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        both = (self._config, self._config.tracker_config)
        return {
            "runtime": {"image_size": self._config.image_size, "spatial_slots": self._places,
                        "ptr_slots": self.pointers, "max_text_seq_len": self.length},
            "tracking": {name: getattr(config, name) for name in TRACKING for config in both if hasattr(config, name)},
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        write_with_pairs(self.folder / "tokenizer.json", bundle / "tokenizer" / "tokenizer.json")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        functions, missing = main_functions(bundle, metadata)
        if missing:
            return missing
        return [*video_problems(functions, metadata), *clip_tokenizer_problems(bundle)]

    @property
    def _places(self) -> int:
        tracker = self._config.tracker_config
        return self.memories or tracker.max_cond_frame_num + tracker.num_maskmem - 1

    @cached_property
    def _config(self) -> Any:
        """The configuration, for frames of the size that the user chooses."""
        from transformers import Sam3VideoConfig

        config = Sam3VideoConfig.from_dict(json_in(self.folder, "config.json"))
        if self.image_size is None:
            return config
        vision = config.detector_config.vision_config
        patch, window = vision.backbone_config.patch_size, vision.backbone_config.window_size
        if self.image_size < 1 or self.image_size % (patch * window):
            raise BundleError(
                f"image_size is {self.image_size}, and must be a multiple of {patch * window}, in pixels, so that "
                f"windows of {window} patches are whole"
            )
        config.image_size = self.image_size
        side, before = self.image_size // patch, config.low_res_mask_size
        vision.backbone_feature_sizes = [[scale * side] * 2 for scale in (4, 2, 1)]
        config.low_res_mask_size = 4 * side
        if config.fill_hole_area:  # an area in pixels of such a mask
            config.fill_hole_area = max(1, round(config.fill_hole_area * (4 * side / before) ** 2))
        return config

    def _entries(self) -> list[Entry]:
        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.segmenter.video_entries import video_inputs, video_modules
        from patcomp_models.tasks.entries import Entry

        model = model_of(self.folder, "transformers", "Sam3VideoModel", self.dtype, config=self._config)
        modules = video_modules(model)
        inputs = video_inputs(model, modules, self.length, self._places, self.pointers)
        return [Entry(name, modules[name], inputs[name], outputs) for name, (_, outputs) in VIDEO_FUNCTIONS.items()]

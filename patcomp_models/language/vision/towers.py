"""The vision towers that are known.

What the size of an image implies (grids, positions, windows) is constant, and computed by the model's own functions.
The model is not changed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.coded import ChameleonTower, EmuTower
from patcomp_models.language.vision.gemma import Gemma3nTower, Gemma4Tower, GemmaTower, PrefixTower, UnifiedTower
from patcomp_models.language.vision.grids import GridTower, StackedTower, WindowTower
from patcomp_models.language.vision.inner import QueryTower
from patcomp_models.language.vision.own import (
    ChannelsLastTower,
    ErnieTower,
    MuseTower,
    OmniTower,
    OwnGridTower,
    PatchTower,
    SurroundedGridTower,
)
from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.refused import WITHOUT_TOWER
from patcomp_models.language.vision.sized import (
    HunYuanTower,
    LinearTower,
    LineTower,
    MiniCPMTower,
    PixtralTower,
    RadioTower,
    ResampledTower,
    VideoLlamaTower,
    ViewTower,
)
from patcomp_models.language.vision.tiled import (
    DoclingTower,
    FineTower,
    GraniteTower,
    LlamaTower,
    PackedTower,
    PerceptionTower,
    TimmTower,
)
from patcomp_models.language.vision.tower import FixedTower, Size, Tower, exchanged

_TILE = 512
"""The side of a tile of LFM2-VL."""


class SurroundedTower(FixedTower):
    """GOT-OCR 2 and Qianfan-OCR."""

    has_tiles = True
    around = Around("<img>", "</img>")


class JanusTower(FixedTower):
    """Janus, whose generation of images is left out."""

    around = Around("<begin_of_image>", "<end_of_image>")


class OvisTower(FixedTower):
    """Ovis2: the tokens around an image have rows of the table of visual words."""

    has_tiles = True
    around = Around("<IMG_START>", "<IMG_GRID><IMG_END>", "<image>")

    def embedded(self, tokens: Tensor) -> list[Tensor]:
        (made,) = super().embedded(tokens)
        rows = self.model.model.visual_embeddings_table.weight[-self.vision.num_visual_indicator_tokens :]
        for token, row in zip(self.model.config.visual_indicator_token_ids, rows, strict=True):
            made = torch.where((tokens == token)[..., None], row, made)
        return [made]


class AriaTower(FixedTower):
    """Aria: as many tokens as queries."""

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.get_image_features(pixel_values=pixels).pooler_output.reshape(-1, self.hidden)]


class ShuffledTower(Tower):
    """Idefics3 and SmolVLM: tokens of several patches, and images that may be smaller than the table of positions."""

    has_tiles = True
    around = Around("<fake_token_around_image><global-img>", "<fake_token_around_image>")

    def __init__(self, model: Any, size: int | None):
        super().__init__(model, size)
        if self.size > self.vision.image_size:
            raise LanguageModelError(
                f"the image size is {self.size}, and this {model.config.model_type} takes {self.vision.image_size} at "
                "most"
            )

    @property
    def unit(self) -> int:
        return int(self.patch_size * self.model.config.scale_factor)

    def features(self, pixels: Tensor) -> list[Tensor]:
        # the model's get_image_features looks for images of zeros, which are padding
        inner = self.model.model
        return [inner.connector(inner.vision_model(pixel_values=pixels).last_hidden_state)[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": pixels[None]}


class InternTower(Tower):
    """InternVL: tokens of several patches; the table of positions is interpolated."""

    has_tiles = True
    around = Around("<img>", "</img>")

    @property
    def unit(self) -> int:
        return int(self.patch_size / self.model.config.downsample_ratio)


class UnfoldedTower(Tower):
    """LFM2-VL: patches as rows, and a table of positions that is interpolated."""

    around = Around("<|image_start|>", "<|image_end|>")

    takes_shapes = takes_patches = channels_last = True
    shapes: Tensor

    def __init__(self, model: Any, size: Size | None):
        super().__init__(model, size)
        embeddings = model.model.vision_tower.embeddings
        side, table = embeddings.position_embedding_size, embeddings.position_embedding.weight
        self.register_buffer("shapes", torch.tensor([self.patch_grid]))
        with torch.no_grad():
            positions = embeddings.resize_positional_embeddings(
                table.reshape(side, side, -1), self.shapes, max_length=math.prod(self.patch_grid)
            )
        self.register_buffer("positions", positions)

    @property
    def usual_size(self) -> int:
        return _TILE // self.unit * self.unit

    @property
    def unit(self) -> int:
        return int(self.patch_size * self.model.config.downsample_factor)

    def features(self, pixels: Tensor) -> list[Tensor]:
        inner, given = self.model.model, self.given(pixels, pixels)
        with exchanged(inner.vision_tower.embeddings, "resize_positional_embeddings", lambda *_, **__: self.positions):
            made = inner.vision_tower(**given, return_dict=True).last_hidden_state
        return [inner.multi_modal_projector(made.reshape(1, *self.patch_grid, -1)).flatten(0, 2)]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        rows = self.patches_of(pixels).flatten(1)[None]
        mask = torch.ones(rows.shape[:2], dtype=torch.int32)
        return {"pixel_values": rows, "spatial_shapes": self.shapes, "pixel_attention_mask": mask}


class AyaTower(FixedTower):
    """Aya Vision: tokens of several patches."""

    has_tiles = True
    around = Around("<|START_OF_IMG|>TILE_GLOBAL", "<|END_OF_IMG|>", "<image>")


class CohereTower(FixedTower):
    """Cohere 2 Vision: tokens of several patches, and a break behind each tile."""

    has_tiles = True
    around = Around("<|START_OF_IMG|>", "<|IMG_LINE_BREAK|><|END_OF_IMG|>")


TOWERS: dict[str, type[Tower]] = {
    "llava": FixedTower,
    "gemma3": GemmaTower,
    "paligemma": PrefixTower,
    "idefics3": ShuffledTower,
    "smolvlm": ShuffledTower,
    "idefics2": ResampledTower,
    "chameleon": ChameleonTower,
    "emu3": EmuTower,
    "blip-2": QueryTower,
    "fuyu": LinearTower,
    "internvl": InternTower,
    "aya_vision": AyaTower,
    "cohere2_vision": CohereTower,
    "lfm2_vl": UnfoldedTower,
    "qwen2_vl": GridTower,
    "qwen2_5_vl": WindowTower,
    "qwen3_vl": StackedTower,
    "qwen3_vl_moe": StackedTower,
    "qwen3_5": StackedTower,
    "qwen3_5_moe": StackedTower,
    "cosmos3_omni": StackedTower,
    "cosmos3_edge": ChannelsLastTower,
    "glm4v": OwnGridTower,
    "glm46v": OwnGridTower,
    "glmga": OwnGridTower,
    "glm4v_moe": OwnGridTower,
    "glm_ocr": OwnGridTower,
    "exaone4_5": OwnGridTower,
    "hyperclovax_vision_v2": OwnGridTower,
    "lfm3_vl": OwnGridTower,
    "minimax_m3_vl": SurroundedGridTower,
    "ernie4_5_vl_moe": ErnieTower,
    "qwen2_5_omni_thinker": OmniTower,
    "qwen3_omni_moe_thinker": OmniTower,
    "minicpm_ocr": MiniCPMTower,
    "paddleocr_vl": PatchTower,
    "kimi_k25": PatchTower,
    "got_ocr2": SurroundedTower,
    "pp_chart2table": SurroundedTower,
    "qianfan_ocr": SurroundedTower,
    "ovis2": OvisTower,
    "deepseek_vl": FixedTower,
    "janus": JanusTower,
    "aria": AriaTower,
    "shieldgemma2": GemmaTower,
    "mistral3": LineTower,
    "video_llama_3": VideoLlamaTower,
    "deepseek_ocr2": ViewTower,
    "nemotron_h_omni": RadioTower,
    "hunyuan_vl": HunYuanTower,
    "minicpmv4_6": MiniCPMTower,
    "lighton_ocr": PixtralTower,
    "gemma3n": Gemma3nTower,
    "gemma4": Gemma4Tower,
    "gemma4_unified": UnifiedTower,
    "cohere_compass": StackedTower,
    "muse_glimmer": MuseTower,
    "muse_spark": MuseTower,
    "mistral_large4": LineTower,
    "dots3_note": OwnGridTower,
    "vipllava": FixedTower,
    "video_llava": FixedTower,
    "llama4": LlamaTower,
    "granite_docling": DoclingTower,
    "fast_vlm": TimmTower,
    "perception_lm": PerceptionTower,
    "llava_next": PackedTower,
    "llava_next_video": PackedTower,
    "llava_onevision": PackedTower,
    "granite4_vision": GraniteTower,
}
"""The towers, by the `model_type` of the whole model."""


def check_known(kind: object, what: str) -> None:
    """Check that the vision tower of an architecture is known.

    Args:
        kind: its `model_type`.
        what: has the model, in an error's words.

    Raises:
        LanguageModelError: it is not.
    """
    if isinstance(kind, str) and kind in WITHOUT_TOWER and kind not in TOWERS:
        raise LanguageModelError(
            f"{what} is of type {kind!r}, which becomes no bundle of images and text: {WITHOUT_TOWER[kind]}"
        )
    if kind not in TOWERS:
        raise LanguageModelError(
            f"{what} is of type {kind!r}, whose vision tower is not known; these are: {', '.join(TOWERS)}; "
            "`patcomp convert-lm` converts a model of text"
        )


def tower_of(model: Any, size: Size | None, *, fine: bool = False) -> Tower:
    """The vision tower of a model of transformers.

    Args:
        model: an `AutoModelForImageTextToText`.
        size: the side of the image, or its height and width; None for the usual square of the architecture.
        fine: whether the image processor asks for the fine path of Granite Docling.

    Raises:
        LanguageModelError: the architecture is not known, or takes no image of this size.
    """
    check_known(model.config.model_type, type(model).__name__)
    if model.config.model_type == "llava" and model.config.vision_config.model_type == "pixtral":
        return LineTower(model, size)
    if fine and TOWERS[model.config.model_type] is DoclingTower:
        return FineTower(model, size)
    return TOWERS[model.config.model_type](model, size)

"""Vision towers that compute features by the model's own `get_image_features`, called as the model calls it: with
pixels, or with patches as rows and the grid of them.

Grids are constant, and the export reads the numbers in them, so the model computes positions, windows and masks itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.vision.grids import GridTower
from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.tower import LanguageCall, Size, Tower, exchanged

_MERGES = ("spatial_merge_size", "merge_kernel_size", "merge_size")
"""What configurations call the side of the square of patches that is a token."""


class OwnGridTower(GridTower):
    """Patches as rows with their grid, those of a token one behind the other: GLM-V, EXAONE 4.5, LFM3-VL and others.

    The positions of a token are three numbers (M-RoPE) if the model has `get_rope_index`, and otherwise its place.
    """

    is_timed = False

    def __init__(self, model: Any, size: Size | None):
        self.is_marked = self.has_saved_positions = hasattr(model.model, "get_rope_index")
        super().__init__(model, size)

    @property
    def merged(self) -> int:
        """The side of the square of patches that is a token."""
        found = next(getattr(self.vision, name) for name in _MERGES if hasattr(self.vision, name))
        return int(found if isinstance(found, int) else found[0])

    @property
    def row_merge(self) -> int:
        return self.merged

    @property
    def unit(self) -> int:
        return self.patch_size * self.merged

    @property
    def token_count(self) -> int:  # type: ignore[override]
        return math.prod(self.grid)  # numbers are not read from grids outside of an export

    def _constants(self, grid: Tensor) -> dict[str, Tensor]:
        return {"thw": grid}

    def features(self, pixels: Tensor) -> list[Tensor]:
        found = self.model.model.get_image_features(self._rows(pixels), self.thw)
        features = [found.pooler_output, *(getattr(found, "deepstack_features", None) or ())]
        return [
            (torch.cat([*each]) if isinstance(each, list | tuple) else each).reshape(-1, self.hidden)
            for each in features
        ]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        given = super().given(pixels, tokens, prompt)
        if not self.is_marked:
            del given["mm_token_type_ids"]
        return given

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        return super().arguments(call) if self.is_marked else Tower.arguments(self, call)


class PatchTower(OwnGridTower):
    """PaddleOCR-VL and Kimi K2.5: patches as small images, line by line."""

    row_merge = 1

    def _rows(self, pixels: Tensor) -> Tensor:
        return self.patches_of(pixels)


class ChannelsLastTower(OwnGridTower):
    """Cosmos 3 Edge: the channels of a pixel are one behind the other."""

    channels_last = True

    def _rows(self, pixels: Tensor) -> Tensor:
        return self.patches_of(pixels).flatten(1)


class ErnieTower(OwnGridTower):
    """ERNIE 4.5 VL: experts of their own for the tokens of images and those around them.

    Each token goes through the experts of both kinds.
    """

    by_token = 1

    @property
    def _ids(self) -> Tensor:
        names = [f"{kind}{place}_token_id" for kind in ("image", "video") for place in ("", "_start", "_end")]
        return torch.tensor([getattr(self.model.config, name) for name in names])

    def embedded(self, tokens: Tensor) -> list[Tensor]:
        kinds = torch.isin(tokens, self._ids)[..., None]
        return [*super().embedded(tokens), kinds.to(self.carried)]

    def features(self, pixels: Tensor) -> list[Tensor]:
        resampler = self.model.model.resampler_model  # the second moment of an image is the first one
        with exchanged(resampler, "_temporal_slicing", lambda seen, _: torch.cat([seen, seen], -1)):
            return super().features(pixels)

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        kinds = torch.isin(tokens, self._ids).int()
        kinds[:, prompt or tokens.shape[1] :] = 0
        return super().given(pixels, tokens, prompt) | {"moe_mm_token_type_ids": kinds}

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        assert call.by_token is not None
        # a token that is written is of text, also if it begins an image
        is_prompt = call.places.narrow(1, 0, 1) < call.places.narrow(1, call.places.shape[1] - 1, 1)
        return super().arguments(call) | {"moe_mm_token_type_ids": (call.by_token[..., 0] > 0.5) & is_prompt}

    @contextmanager
    def adapted(self) -> Iterator[None]:
        with ExitStack() as changed:
            for layer in self.model.model.language_model.layers:
                if hasattr(layer.mlp, "vision_moe"):
                    changed.enter_context(exchanged(layer.mlp, "forward", partial(_of_both, layer.mlp)))
            yield


def _of_both(block: Any, hidden: Tensor, is_image: Tensor) -> tuple[Tensor, None]:
    """A block of experts for text and for images, without a branch for prompts of text."""
    text, image = (part(hidden)[0].reshape(hidden.shape) for part in (block.text_moe, block.vision_moe))
    made = torch.where(is_image[..., None], image, text)
    return made if block.shared_experts is None else made + block.shared_experts(hidden), None


class OmniTower(OwnGridTower):
    """Qwen2.5-Omni and Qwen3-Omni.

    The model finds images by the token that begins one, and positions are then those of the other models of Qwen.
    """

    is_timed = counts_time = True

    @property
    def begin(self) -> int:  # type: ignore[override]
        return int(self.model.config.vision_start_token_id)

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        given = super().given(pixels, tokens, prompt)
        del given["mm_token_type_ids"]
        return {**given, "attention_mask": torch.ones_like(tokens)}


class SurroundedGridTower(OwnGridTower):
    """MiniMax-M3."""

    around = Around("]<]start of image[>[", "]<]end of image[>[")


class MuseTower(OwnGridTower):
    """Muse Glimmer and Spark: each moment of a patch is one behind the other, patches line by line; sounds are left
    out."""

    around = Around("<|image_start|>", "<|image_end|>")
    row_merge = 1
    moments_first = True

    def _rows(self, pixels: Tensor) -> Tensor:
        return self.patches_of(pixels).flatten(1).repeat(1, self.vision.patch_temporal)

    def embedded(self, tokens: Tensor) -> list[Tensor]:
        for name in ("image_token_id", "video_token_id", "audio_token_id"):  # the model reads row 0 for all of them
            tokens = torch.where(tokens == getattr(self.model.config, name, -1), 0, tokens)
        return super().embedded(tokens)

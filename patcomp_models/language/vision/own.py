"""Vision towers that compute features by the model's own `get_image_features`, called as the model calls it: with
pixels, or with patches as rows and the grid of them.

Grids are constant, and the export reads the numbers in them, so the model computes positions, windows and masks itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.vision.grids import GridTower
from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.tower import LanguageCall, Size, Tower

_MERGES = ("spatial_merge_size", "merge_kernel_size")
"""What configurations call the side of the square of patches that is a token."""


class OwnGridTower(GridTower):
    """Patches as rows with their grid, those of a token one behind the other: GLM-V, EXAONE 4.5, LFM3-VL and others.

    The positions of a token are three numbers (M-RoPE) if the model has `get_rope_index`, and otherwise its place.
    """

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

    def _rows(self, pixels: Tensor) -> Tensor:
        patches = self.patches_of(pixels)
        moments = int(getattr(self.vision, "temporal_patch_size", 1))
        return patches[:, :, None].expand(-1, -1, moments, -1, -1).reshape(len(patches), -1)

    def features(self, pixels: Tensor) -> list[Tensor]:
        made = self.model.model.get_image_features(self._rows(pixels), self.thw).pooler_output
        made = torch.cat([*made]) if isinstance(made, list | tuple) else made
        return [made.reshape(-1, self.hidden)]

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


class SurroundedGridTower(OwnGridTower):
    """MiniMax-M3."""

    around = Around("]<]start of image[>[", "]<]end of image[>[")

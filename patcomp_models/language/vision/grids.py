"""Vision towers of Qwen: patches as rows, positions of row and column, several positions for a token."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import vision_utils

from patcomp_models.language.vision.tower import SQUARE, LanguageCall, Size, Tower


class GridTower(Tower):
    """Qwen2-VL: patches as rows, and positions of row and column.

    Boundaries of sequences are NumPy arrays, whose elements are numbers during an export.
    """

    is_marked = is_timed = True
    has_saved_positions = True
    takes_shapes = takes_patches = True
    thw: Tensor

    def __init__(self, model: Any, size: Size | None):
        super().__init__(model, size)
        rows, columns = self.patch_grid
        self._ends = np.array([0, rows * columns])
        for name, value in self._constants(torch.tensor([[1, rows, columns]])).items():
            self.register_buffer(name, value)

    @property
    def stacked(self) -> int:  # type: ignore[override]
        return len(getattr(self.vision, "deepstack_visual_indexes", None) or ())

    @property
    def usual_size(self) -> int:
        return SQUARE // self.unit * self.unit

    @property
    def row_merge(self) -> int:
        return int(self.vision.spatial_merge_size)

    @property
    def unit(self) -> int:
        return self.patch_size * self.row_merge

    def _constants(self, grid: Tensor) -> dict[str, Tensor]:
        """What the model's own functions compute of the grid."""
        return {"thw": grid, "positions": vision_utils.get_vision_position_ids(grid, self.vision.spatial_merge_size)}

    def _options(self) -> dict[str, Any]:
        """The arguments by which the tower takes what it would compute of the grid."""
        return {"position_ids": self.positions, "cu_seqlens": self._ends, "max_seqlen": int(self._ends[-1])}

    def features(self, pixels: Tensor) -> list[Tensor]:
        found = self.model.model.visual(self._rows(pixels), self.thw, return_dict=True, **self._options())
        return [found.pooler_output, *(getattr(found, "deepstack_features", None) or ())]

    def _rows(self, pixels: Tensor) -> Tensor:
        """Patches, each of them for every frame of a video that a token spans, of which an image is each one."""
        if len(pixels) > 1:
            return torch.stack([self.patches_of(frame) for frame in pixels], 2).flatten(1)
        patches, moments = self.patches_of(pixels), int(getattr(self.vision, "temporal_patch_size", 1))
        return patches[:, :, None].expand(-1, -1, moments, -1, -1).reshape(len(patches), -1)

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        kinds = self.is_image(tokens).int()
        return {"pixel_values": self._rows(pixels), "image_grid_thw": self.thw, "mm_token_type_ids": kinds}

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        assert call.marks is not None
        assert call.skipped_before is not None
        return {"position_ids": call.marks.positions(call.places, call.skipped_before)}


class WindowTower(GridTower):
    """Qwen2.5-VL: with windows of attention."""

    def _constants(self, grid: Tensor) -> dict[str, Tensor]:
        index, ends = vision_utils.get_vision_window_index(
            grid, spatial_merge_size=self.vision.spatial_merge_size, window_size=self.vision.window_size,
            patch_size=self.patch_size,
        )  # fmt: skip
        self._window_ends = ends.numpy()
        return super()._constants(grid) | {"window_index": index}

    def _options(self) -> dict[str, Any]:
        longest = int(np.diff(self._window_ends).max())
        return super()._options() | {
            "window_index": self.window_index, "cu_window_seqlens": self._window_ends, "max_window_seqlen": longest,
        }  # fmt: skip


class StackedTower(GridTower):
    """Qwen3-VL: with a table of positions that is interpolated, and features for the first layers (DeepStack).

    Its moments of a video are images with texts of their times between them.
    """

    is_timed = False

    def _constants(self, grid: Tensor) -> dict[str, Tensor]:
        visual = self.model.model.visual
        taps, weights = vision_utils.get_vision_interpolation_indices_and_weights(
            grid, num_grid_per_side=visual.num_grid_per_side, mode=visual.interpolation_mode,
            align_corners=visual.interpolation_align_corners, spatial_merge_size=self.vision.spatial_merge_size,
        )  # fmt: skip
        return super()._constants(grid) | {"taps": taps, "weights": weights.to(self.model.dtype)}

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"interp_indices": self.taps, "interp_weights": self.weights}

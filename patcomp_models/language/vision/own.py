"""Vision towers that compute the features of an image by the model's own `get_image_features`, called as the model calls
it: with the pixels, or with patches as rows and the grid of them.

Grids are constant, and the export reads the numbers in them, so positions, windows and masks are computed by the model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.vision.grids import GridTower
from patcomp_models.language.vision.tower import LanguageCall, Tower


def rows_of(found: Any, width: int) -> list[Tensor]:
    """The features of an image from what `get_image_features` returns, (tokens, width), and further ones (DeepStack)."""
    made = getattr(found, "pooler_output", found)
    made = torch.cat([*made]) if isinstance(made, list | tuple) else made
    return [each.reshape(-1, width) for each in (made, *(getattr(found, "deepstack_features", None) or ()))]


def holder_of(model: Any) -> Any:
    """The part of a model that has `get_image_features`."""
    inner = getattr(model, "model", model)
    return inner if hasattr(inner, "get_image_features") else model


class OwnGridTower(GridTower):
    """A tower of patches as rows that takes their grid; M-RoPE where the model has positions of three numbers."""

    merges_in_rows = True
    """Whether the patches of a token are rows one behind the other; otherwise rows are line by line."""

    def __init__(self, model: Any, size: int | None):
        self.is_marked = self.has_saved_positions = hasattr(model.model, "get_rope_index")  # type: ignore[misc]
        super().__init__(model, size)

    @property
    def merged(self) -> int:
        """The side of the square of patches that is a token."""
        found = getattr(self.vision, "spatial_merge_size", None) or self.vision.merge_kernel_size
        return int(found if isinstance(found, int) else found[0])

    @property
    def unit(self) -> int:
        return self.patch_size * self.merged

    def _constants(self, grid: Tensor) -> dict[str, Tensor]:
        return {"grid": grid}

    def _rows(self, pixels: Tensor) -> Tensor:
        patches = self.patches_of(pixels, merged=self.merged if self.merges_in_rows else 1)
        moments = int(getattr(self.vision, "temporal_patch_size", None) or 1)
        return patches[:, :, None].expand(-1, -1, moments, -1, -1).reshape(len(patches), -1)

    def features(self, pixels: Tensor) -> list[Tensor]:
        found = holder_of(self.model).get_image_features(self._rows(pixels), self.grid)
        return rows_of(found, self.hidden)

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        given = super().given(pixels, tokens, prompt)
        if not self.is_marked:
            del given["mm_token_type_ids"]
        return given

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        return super().arguments(call) if self.is_marked else Tower.arguments(self, call)

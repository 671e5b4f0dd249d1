"""Vision towers that read the size of an image beside its pixels, which is constant here."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.tower import SQUARE, Tower


class PixtralTower(Tower):
    """Pixtral and LightOnOCR: images of any size."""

    takes_shapes = True

    @property
    def usual_size(self) -> int:
        return SQUARE // self.unit * self.unit

    @property
    def unit(self) -> int:
        return self.patch_size * int(getattr(self.model.config, "spatial_merge_size", 1))

    @property
    def token_count(self) -> int:  # type: ignore[override]
        rows, columns = self.grid
        return rows * columns

    def features(self, pixels: Tensor) -> list[Tensor]:
        sizes = [self.shape]
        return [self.model.model.get_image_features(pixel_values=pixels, image_sizes=sizes).pooler_output[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": pixels, "image_sizes": torch.tensor([[*self.shape]])}


class LineTower(PixtralTower):
    """Pixtral and Mistral 3: a token behind each line of an image."""

    around = Around("", "[IMG_END]", line="[IMG_BREAK]")

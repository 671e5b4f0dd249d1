"""Vision towers that make tokens of a vocabulary of an image: its features are the embeddings of these tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.sized import PixtralTower
from patcomp_models.language.vision.tower import FixedTower, Size


class ChameleonTower(FixedTower):
    """Chameleon."""

    around = Around("<racm3:break>", "<eoss>", "<image>")

    def __init__(self, model: Any, size: Size | None):
        _ = model.model.vocabulary_mapping.img2bpe_mapping_tensor  # it is made once, and not within an export
        super().__init__(model, size)

    @property
    def usual_size(self) -> int:
        return int(self.vision.resolution)

    @property
    def patch_size(self) -> int:
        return int(2 ** (len(self.vision.channel_multiplier) - 1))


class EmuTower(PixtralTower):
    """Emu3, whose generation of images is left out: a token behind each line of an image."""

    takes_one_shape = True

    def __init__(self, model: Any, size: Size | None):
        _ = model.model.vocabulary_mapping.img2bpe_mapping_tensor
        super().__init__(model, size)

    @property
    def patch_size(self) -> int:
        return int(self.model.model.vqmodel.vision_spatial_factor)

    @property
    def unit(self) -> int:
        return self.patch_size

    @property
    def token_count(self) -> int:  # type: ignore[override]
        rows, columns = self.grid
        return rows * (columns + 1)

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.get_image_features(pixels, [self.shape]).pooler_output[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": pixels, "image_sizes": torch.tensor([self.shape])}

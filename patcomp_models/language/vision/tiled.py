"""Vision towers whose processor makes tiles of a picture, further to those of `towers.py`: the tokens between the tiles
are the processor's, or the model itself packs the features of the tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.tower import FixedTower, Tower

_FAST_SIZE = 1024
"""The side of the image of the published FastVLM."""


class LlamaTower(FixedTower):
    """Llama 4: tokens of several patches; separators stand between the tiles, and the whole picture is the last one."""

    has_tiles = True
    around = Around("<|image_start|><|image|>", "<|image_end|>", "<|image|>")

    @property
    def language(self) -> Any:
        return self.model.language_model

    @contextmanager
    def mended(self) -> Iterator[None]:
        """In transformers 5.24 the model reads an output that its language model does not give."""
        handle = self.language.register_forward_hook(lambda _, given, made: setattr(made, "image_outputs", None))
        try:
            yield
        finally:
            handle.remove()

    def features(self, pixels: Tensor) -> list[Tensor]:
        found = self.model.get_image_features(pixel_values=pixels, return_dict=True).last_hidden_state
        return [self.model.multi_modal_projector(found[0])]


class DoclingTower(FixedTower):
    """Granite Docling: tokens of several patches, with features for the first layers (DeepStack)."""

    fine = False
    """Whether a tile has four times as many tokens."""
    has_tiles = True
    around = Around("<fake_token_around_image><row_1_col_1>", "\n")

    @property
    def stacked(self) -> int:  # type: ignore[override]
        return len(self.vision.deepstack_visual_indexes)

    def features(self, pixels: Tensor) -> list[Tensor]:
        # the model's get_image_features picks tiles by a mask
        found = self.model.model.vision_model(pixel_values=pixels, fine=self.fine, return_dict=True)
        return [found.pooler_output, *found.deepstack_features]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Any]:
        real = torch.ones(1, 1, dtype=torch.bool)
        path = {"tile_fine_mask": real[0]} if self.fine else {}
        return {"pixel_values": pixels[None], "pixel_attention_mask": real, **path}


class FineTower(DoclingTower):
    """Granite Docling by its fine path."""

    fine = True


class TimmTower(Tower):
    """A tower of timm: FastVLM, whose images may have any size."""

    @property
    def patch_size(self) -> int:
        return int(self.model.model.vision_tower.timm_model.feature_info[-1]["reduction"])

    @property
    def usual_size(self) -> int:
        return _FAST_SIZE


class PerceptionTower(TimmTower):
    """Perception LM: a ViT of timm, with tiles behind an image of the whole picture."""

    has_tiles = True

    @property
    def usual_size(self) -> int:
        return int(self.model.model.vision_tower.timm_model.patch_embed.img_size[0])

    @property
    def unit(self) -> int:
        return self.usual_size

    def features(self, pixels: Tensor) -> list[Tensor]:
        return super().features(pixels[None])

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Any]:
        return {"pixel_values": pixels[None]}


class PackedTower(FixedTower):
    """LLaVA-NeXT and LLaVA-OneVision: the model lays the features of tiles out as the picture and cuts its padding.

    The last row is the token that ends each line; so it ends the one line of one image.
    """

    has_tiles = True
    packs = True

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self._own(pixels).pooler_output[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Any]:
        with torch.no_grad():
            return {"mm_encoder_outputs": {"image": self._own(pixels.to(self.model.dtype))}}

    def _own(self, pixels: Tensor) -> Any:
        """What the model computes of one image without tiles, (1, 3, size, size)."""
        with _without_tiles(self.model.config):
            return self.model.get_image_features(pixels[None], [[self.size, self.size]], return_dict=True)


class GraniteTower(PackedTower):
    """Granite Vision 4: nothing stands in the place of embeddings, and features are added before further layers."""

    @property
    def stacked(self) -> int:  # type: ignore[override]
        return len(self.stacked_before)

    @property
    def stacked_before(self) -> list[int]:  # type: ignore[override]
        config = self.model.config
        return list(dict.fromkeys([*(layer for _, layer in config.deepstack_layer_map), *config.spatial_target_layers]))

    def features(self, pixels: Tensor) -> list[Tensor]:
        found = {layer: features[0] for layer, features in self._own(pixels).deepstack_features}
        parts = [found[layer] for layer in self.stacked_before]
        return [torch.zeros_like(parts[0]), *parts]


@contextmanager
def _without_tiles(config: Any) -> Iterator[None]:
    """A picture of any size is one image for a while: of the canvases that tiles fill, there is an empty one only."""
    pinpoints, config.image_grid_pinpoints = config.image_grid_pinpoints, [[0, 0]]
    try:
        yield
    finally:
        config.image_grid_pinpoints = pinpoints

"""Vision towers that read the size of an image beside its pixels, which is constant here."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.language.vision.marks import Marks, marks_of_image
from patcomp_models.language.vision.own import OwnGridTower
from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.tower import SQUARE, LanguageCall, Size, Tower


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
        return math.prod(self.grid)

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.get_image_features(pixel_values=pixels, image_sizes=[self.shape]).pooler_output[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": pixels, "image_sizes": torch.tensor([self.shape])}


class LineTower(PixtralTower):
    """Pixtral and Mistral 3: a token behind each line of an image."""

    around = Around("", "[IMG_END]", line="[IMG_BREAK]")


class HunYuanTower(OwnGridTower):
    """HunYuan VL: a token behind each line of an image, one before the first and one behind the last.

    The axes of positions are the place of a token, as often as there are axes beyond three, and in an image its column,
    its row, and the number of images before.
    """

    row_merge = 1

    @property
    def grid(self) -> tuple[int, int]:
        rows, columns = super().grid
        return rows, columns + 1

    @property
    def token_count(self) -> int:  # type: ignore[override]
        return math.prod(self.grid) + 2

    def _rows(self, pixels: Tensor) -> Tensor:
        return self.patches_of(pixels).flatten(1)

    def marks(self) -> Tensor:
        return nn.functional.pad(marks_of_image(*self.grid), (0, 0, 1, 1))

    def counted(self, marks: Marks) -> Tensor:
        return marks.is_last.float()  # images

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        assert call.marks is not None
        assert call.skipped_before is not None
        marks, places = call.marks, call.places.float()
        axes = len(self.model.config.text_config.rope_parameters["mrope_section"])
        three = [torch.where(marks.is_image, each, places) for each in (marks.column, marks.row, call.skipped_before)]
        return {"position_ids": torch.stack([places] * (axes - 3) + three)}


class MiniCPMTower(PixtralTower):
    """MiniCPM-V 4.6: patches side by side in one image of the height of a patch; slices are images of their own."""

    around = Around("<image_id>0</image_id><image>", "</image>")
    takes_patches = True
    sizes: Tensor

    def __init__(self, model: Any, size: Size | None):
        super().__init__(model, size)
        self.register_buffer("sizes", torch.tensor([self.patch_grid]))

    @property
    def unit(self) -> int:
        config = self.model.config
        merged = int(config.merge_kernel_size[0] ** config.merger_times)
        return self.patch_size * merged * (1 if config.downsample_mode == "4x" else 2)

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.get_image_features(**self.given(pixels, pixels)).pooler_output[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        packed = self.patches_of(pixels).permute(1, 2, 0, 3).reshape(1, 3, self.patch_size, -1)
        return {"pixel_values": packed, "target_sizes": self.sizes}


class LinearTower(LineTower):
    """Fuyu: patches go into a projection, and a token stands behind each line of an image."""

    around = Around("", "|NEWLINE|<s>", line="|NEWLINE|")
    takes_shapes = False  # its processor has an output of its own for them
    channels_last = True

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.vision_embed_tokens(self.patches_of(pixels).flatten(1))]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": self.patches_of(pixels).flatten(1)[None]}


class ResampledTower(PixtralTower):
    """Idefics2: as many tokens as latents for images of any size."""

    around = Around("<fake_token_around_image>", "<fake_token_around_image>")
    mask: Tensor

    def __init__(self, model: Any, size: Size | None):
        super().__init__(model, size)
        self.register_buffer("mask", torch.ones(1, *self.patch_grid, dtype=torch.bool))

    @property
    def usual_size(self) -> int:
        return int(self.vision.image_size) // self.unit * self.unit

    @property
    def token_count(self) -> int:  # type: ignore[override]
        return int(self.model.config.perceiver_config.resampler_n_latents)

    def features(self, pixels: Tensor) -> list[Tensor]:
        inner = self.model.model  # whose get_image_features looks for images of zeros, which are padding
        seen = inner.vision_model(pixel_values=pixels, patch_attention_mask=self.mask).last_hidden_state
        return [inner.connector(seen, attention_mask=self.mask.flatten(1))[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": pixels[None], "pixel_attention_mask": torch.ones(1, 1, *self.shape)}


class VideoLlamaTower(OwnGridTower):
    """VideoLLaMA 3: a token for each patch of an image."""

    row_merge = merged = 1
    merges: Tensor

    def _constants(self, grid: Tensor) -> dict[str, Tensor]:
        return super()._constants(grid) | {"merges": torch.tensor([self.merged])}

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.get_image_features(self._rows(pixels), self.thw, self.merges).pooler_output[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return super().given(pixels, tokens, prompt) | {"image_merge_sizes": self.merges}


class ViewTower(Tower):
    """DeepSeek-OCR 2: the view of the whole image, behind which there is a token of its own, and smaller views of parts
    of it."""

    has_tiles = True

    @property
    def usual_size(self) -> int:
        return int(self.vision.sam_config.image_size)

    @property
    def patch_size(self) -> int:
        return int(self.vision.sam_config.patch_size)

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [*self._own(pixels).pooler_output]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Any]:
        with torch.no_grad():
            return {"mm_encoder_outputs": {"image": self._own(pixels.to(self.model.dtype))}}

    def _own(self, pixels: Tensor) -> Any:
        """What the model computes of one view, without the last token of a part."""
        made = self.model.model.get_image_features(pixels)
        if self.size < self.usual_size:
            made.pooler_output = [each[:-1] for each in made.pooler_output]
        return made


class RadioTower(Tower):
    """Nemotron Omni: tokens of several patches; audio is left out."""

    takes_shapes = takes_patches = True
    around = Around("<img>", "</img>")

    @property
    def usual_size(self) -> int:
        return SQUARE // self.unit * self.unit

    @property
    def unit(self) -> int:
        return int(self.patch_size / self.model.config.downsample_ratio)

    def features(self, pixels: Tensor) -> list[Tensor]:
        seen = self.model.vision_model(pixels).features
        return [self.model.project_vision_features(seen, *self.patch_grid).reshape(-1, self.hidden)]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": self.patches_of(pixels).flatten(1), "image_grid_hw": torch.tensor([self.patch_grid])}

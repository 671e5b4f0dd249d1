"""Vision towers of models that cannot be called without an image: their language model is called in their place."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.tower import FixedTower, Size


class QueryTower(FixedTower):
    """BLIP-2 with a decoder: as many tokens as queries."""

    def __init__(self, model: Any, size: Size | None):
        if not model.config.use_decoder_only_language_model:
            raise LanguageModelError(
                "the language model of this blip-2 has an encoder, and a bundle has a decoder only; export it by "
                "FILE.py:FUNCTION"
            )
        super().__init__(model, size)

    @property
    def language(self) -> Any:
        return self.model.language_model

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.get_image_features(pixels).pooler_output[0]]

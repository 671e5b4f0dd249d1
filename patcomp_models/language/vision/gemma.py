"""Vision towers of Gemma, and how its language models see the tokens of an image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.checkpoints.loading import attention_of
from patcomp_models.language.vision.prompts import Around
from patcomp_models.language.vision.tower import FixedTower, LanguageCall, Size, Tower, exchanged

_SQUARE = 768
"""The side to which the image processor of Gemma 4 resizes squares: 256 tokens, of 280 at most."""


class PrefixTower(FixedTower):
    """PaliGemma: the tokens of the prompt, which is the first call, see each other; positions begin at 1."""

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        kinds = torch.zeros_like(tokens)
        kinds[:, prompt or tokens.shape[1] :] = 1
        return {"pixel_values": pixels, "token_type_ids": kinds}

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        for layer in call.cache.layers:
            layer.is_initialized = False  # else the model takes the call for a later one
        is_later = (call.places.narrow(1, 0, 1) > 0).long().expand(call.places.shape)
        return {"position_ids": call.places + 1, "token_type_ids": _behind(is_later, call.offset, 1)}


class TwoWayTower(Tower):
    """The tokens of an image see each other."""

    is_marked = True
    kinds = "token_type_ids"
    """The argument that tells the model which tokens are of images."""

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return {"pixel_values": pixels, self.kinds: self.is_image(tokens).long()}

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        assert call.marks is not None
        # the model's own masks of windows are made by vmap, which a program cannot hold
        image = torch.where(call.marks.is_image, call.marks.starts(call.places), -1)
        every = _behind(image, call.offset, -1)
        new, old = torch.arange(image.shape[1])[:, None] + call.offset, torch.arange(every.shape[1])
        text = self.model.config.get_text_config()
        seen = self.seen(old <= new, (image == image.clamp(min=0))[..., None] & (image[..., None] == every[:, None]),
                         old > new - text.sliding_window)  # fmt: skip
        if attention_of(self.model) == "eager":
            kind = call.embeddings.dtype
            seen = [torch.where(each, 0.0, torch.finfo(kind).min).to(kind) for each in seen]
        full, sliding = (each.reshape(1, 1, *each.shape[-2:]) for each in seen)
        return {
            "position_ids": call.places,
            "attention_mask": {"full_attention": full, "sliding_attention": sliding},
        }

    def seen(self, earlier: Tensor, image: Tensor, near: Tensor) -> list[Tensor]:
        """What the new tokens see in layers of full attention and in those with windows, (q, n) or (1, q, n) of bool.

        Args:
            earlier: earlier tokens and the token itself, (q, n).
            image: the tokens of the same image, (1, q, n).
            near: the window and all behind it, (q, n).
        """
        full = earlier | image
        return [full, near & full]


class GemmaTower(TwoWayTower, FixedTower):
    """Gemma 3; crops of pan and scan are images of their own."""

    has_tiles = True
    around = Around("\n\n<start_of_image>", "<end_of_image>\n\n", "<start_of_image>")

    @property
    def grid(self) -> tuple[int, int]:
        side = int(self.model.config.mm_tokens_per_image**0.5)
        return side, side


class Gemma3nTower(Tower):
    """Gemma 3n, with embeddings of each layer; audio is left out."""

    around = Around("\n\n<start_of_image>", "<end_of_image>\n\n")

    @property
    def by_token(self) -> int:  # type: ignore[override]
        return _per_layer(self.model)

    @property
    def usual_size(self) -> int:
        return _SQUARE

    @property
    def patch_size(self) -> int:
        return self.size // int(self.model.config.vision_soft_tokens_per_image**0.5)

    def embedded(self, tokens: Tensor) -> list[Tensor]:
        inner = self.model.model
        made = inner.get_input_embeddings()(tokens)
        vision, audio = inner.embed_vision, inner.embed_audio
        is_audio = tokens >= audio.vocab_offset
        for part, here in ((vision, (tokens >= vision.vocab_offset) & ~is_audio), (audio, is_audio)):
            rows = part(input_ids=torch.where(here, tokens, part.vocab_offset))
            made = torch.where(here[..., None], rows, made)
        return [made, inner.language_model.get_per_layer_inputs(tokens).flatten(2)]

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        return super().arguments(call) | {"per_layer_inputs": _of_layers(call, self.model)}


class Gemma4Tower(TwoWayTower):
    """Gemma 4: patches as rows, with their positions; the tokens of an image see each other in windows of the larger
    models, and the smaller models have embeddings of each layer; audio is left out."""

    around = Around("<|image>", "<image|>")
    takes_shapes = takes_patches = channels_last = True
    kinds = "mm_token_type_ids"
    places: Tensor

    def __init__(self, model: Any, size: Size | None):
        text = model.config.get_text_config()
        self.is_marked = text.use_bidirectional_attention == "vision"
        super().__init__(model, size)
        rows, columns = self.patch_grid
        index = torch.arange(rows * columns)
        self.register_buffer("places", torch.stack([index % columns, index // columns], -1)[None])

    @property
    def by_token(self) -> int:  # type: ignore[override]
        return _per_layer(self.model)

    @property
    def usual_size(self) -> int:
        return _SQUARE // self.unit * self.unit

    @property
    def unit(self) -> int:
        return int(self.vision.patch_size * self.vision.pooling_kernel_size)

    def embedded(self, tokens: Tensor) -> list[Tensor]:
        config, inner = self.model.config, self.model.model.language_model
        for other in (config.image_token_id, config.video_token_id, config.audio_token_id):
            tokens = torch.where(tokens == other, config.text_config.pad_token_id, tokens)
        made = [inner.embed_tokens(tokens)]
        return [*made, inner.get_per_layer_inputs(tokens).flatten(2)] if self.by_token else made

    def features(self, pixels: Tensor) -> list[Tensor]:
        inner = self.model.model
        pooler = inner.vision_tower.pooler

        def pooled(**given: Any) -> tuple[Tensor, slice]:
            made, _ = type(pooler).forward(pooler, **given)
            return made, slice(None)  # no patch is padding, which the tower would look for

        with exchanged(pooler, "forward", pooled):
            made = inner.vision_tower(self._rows(pixels), self.places).last_hidden_state
        return [inner.embed_vision(made)[0]]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        return super().given(self._rows(pixels), tokens) | {"image_position_ids": self.places}

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        made = super().arguments(call) if self.is_marked else Tower.arguments(self, call)
        return made | ({"per_layer_inputs": _of_layers(call, self.model)} if self.by_token else {})

    def seen(self, earlier: Tensor, image: Tensor, near: Tensor) -> list[Tensor]:
        return [earlier, near & (earlier | image)]

    def _rows(self, pixels: Tensor) -> Tensor:
        return self.patches_of(pixels).flatten(1)[None]


class UnifiedTower(Gemma4Tower):
    """Gemma 4 without a tower: patches of the size of a token go into a projection."""

    @property
    def patch_size(self) -> int:
        return self.unit

    def features(self, pixels: Tensor) -> list[Tensor]:
        return [self.model.model.embed_vision(self._rows(pixels), self.places).pooler_output[0]]

    def seen(self, earlier: Tensor, image: Tensor, near: Tensor) -> list[Tensor]:
        return [earlier | image, near & earlier | image]


def _per_layer(model: Any) -> int:
    """How many elements the embeddings of each layer have for a token; 0 for models without them."""
    text = model.config.get_text_config()
    return int(text.num_hidden_layers * (getattr(text, "hidden_size_per_layer_input", 0) or 0))


def _of_layers(call: LanguageCall, model: Any) -> Tensor:
    """The embeddings of each layer, (1, q, layers, width)."""
    assert call.by_token is not None
    return call.by_token.unflatten(2, (model.config.get_text_config().num_hidden_layers, -1))


def _behind(kinds: Tensor, offset: Any, earlier: int) -> Tensor:
    """The kinds of all tokens, from those of the new ones."""
    return nn.functional.pad(kinds, (offset, 0), value=earlier)

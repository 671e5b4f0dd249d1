"""A vision tower of transformers with an image of one shape, and how the language model takes its features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.pytorch import FakeTensorMode
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.vision.marks import MARK_COLUMNS, MOMENT_COLUMNS, Marks, marks_of_image
from patcomp_models.language.vision.prompts import Around

Size = int | tuple[int, int]
"""The side of a square image, or the height and width of an image."""
SQUARE = 448
"""The side of the image of towers for images of any size, as in Apple's bundle of Qwen3-VL."""


@dataclass(frozen=True)
class LanguageCall:
    """A call of the language model."""

    embeddings: Tensor
    """(1, q, hidden), of the new tokens."""
    places: Tensor
    """(1, q), the numbers of the new tokens."""
    offset: Any
    """The number of tokens of earlier calls."""
    cache: Any
    marks: Marks | None
    """Of the new tokens."""
    skipped_before: Tensor | None
    """(1, q), the sum of what `Tower.counted` says of the tokens before each new one."""
    by_token: Tensor | None
    """(1, q, width), what else rides behind the embeddings of the new tokens."""


class Tower(nn.Module):
    """The part of a vision-language model that makes features of an image; and how the language model takes them.

    Args:
        model: an `AutoModelForImageTextToText`.
        size: the side of the image, in pixels, or its height and width; None for the usual square.

    Raises:
        LanguageModelError: the model takes no image of this size.

    Called with `pixel_values`, (1, 3, height, width) of float32, it returns the features, (1, image tokens, width), of
    float16 if the model computes in half precision. What rides behind the features of a token (`extra` elements) is
    behind its embedding, too.
    """

    is_marked = False
    """Whether the marks of `marks.py` ride behind the features."""
    has_saved_positions = False
    """Whether a row of the cache adds up what `counted` says, as if an image takes fewer positions than tokens."""
    is_timed = counts_time = False
    """Whether the marks also say which moment of a video an image is; and whether the text behind a video begins behind
    the position of its last moment."""
    takes_shapes = False
    """Whether an image may have any height and width."""
    by_token = 0
    """How many elements `embedded` gives for a token beside its embedding, which ride behind it."""
    takes_one_shape = False
    """Whether the features of an image depend on the padding to the largest one beside it."""
    takes_patches = False
    """Whether the model takes the patches of an image as rows, not pixels."""
    channels_last = False
    """Whether the channels of a pixel are one behind the other, in such a model."""
    moments_first = False
    """Whether each moment of a patch is one behind the other in a row, of a model of videos; else each channel is."""
    stacked = 0
    """How many further features of a token ride behind the first."""
    has_tiles = False
    """Whether the processor's tiles of a picture are images of their own, one behind the other."""
    packs = False
    """Whether the model packs the features of tiles, and the last row of each is the one that ends a line."""
    begin: int | None = None
    """The token that must be before an image, if the model finds images by it."""
    of_image: Tensor
    """(1, width), what `embedded` gives for an image token beside its embedding, if anything."""
    around: Around | None = None
    """What the architecture's processor puts around the tokens of an image."""

    def __init__(self, model: Any, size: Size | None):
        super().__init__()
        self.model = model
        config = model.config
        own = (getattr(config, name, None) for name in ("vision_config", "vq_config"))
        self.vision: Any = next((each for each in own if each is not None), config)
        size = size or self.usual_size
        self.shape = (size, size) if isinstance(size, int) else size
        self.hidden = int(model.config.get_text_config().hidden_size)
        unit, shown = self.unit, size if isinstance(size, int) else "x".join(map(str, size))
        if any(side < unit or side % unit for side in self.shape):
            raise LanguageModelError(
                f"the image size is {shown}, and {model.config.model_type} takes multiples of {unit} pixels"
            )
        if not self.takes_shapes and self.shape[0] != self.shape[1]:
            raise LanguageModelError(f"the image size is {shown}, and {model.config.model_type} takes squares only")
        if self.by_token:
            with torch.no_grad():
                _, of_image = self.embedded(torch.tensor([[model.config.image_token_id]]))
            self.register_buffer("of_image", of_image[0])

    @property
    def language(self) -> Any:
        """The model that takes embeddings and gives logits."""
        return self.model

    @property
    def size(self) -> int:
        """The side of a square image."""
        return self.shape[0]

    @property
    def usual_size(self) -> int:
        """The size of an image where nothing says another one."""
        return _one(self.vision.image_size)

    @property
    def patch_size(self) -> int:
        return _one(self.vision.patch_size)

    @property
    def row_merge(self) -> int:
        """The side of the squares of patches that are one behind the other, if the model takes patches."""
        return 1

    @property
    def unit(self) -> int:
        """The size of an image must be a multiple of it."""
        return self.patch_size

    @cached_property
    def token_count(self) -> int:
        """How many tokens an image has."""
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            return int(self(torch.zeros(1, 3, *self.shape)).shape[1])

    @property
    def grid(self) -> tuple[int, int]:
        """How many rows and columns of tokens the image has, of a model with marks."""
        return self.shape[0] // self.unit, self.shape[1] // self.unit

    @property
    def stacked_before(self) -> list[int]:
        """The layers to whose input further features are added; the number behind the last layer is the norm."""
        return list(range(1, self.stacked + 1))

    @property
    def mark_columns(self) -> int:
        """How many marks a token has."""
        return (MARK_COLUMNS + (MOMENT_COLUMNS if self.is_timed else 0)) * self.is_marked

    @property
    def extra(self) -> int:
        """How many elements ride behind the features of a token."""
        return self.by_token + self.stacked * self.hidden + self.mark_columns

    @property
    def carried(self) -> torch.dtype:
        """The type of features and embeddings."""
        return features_dtype(self.model)

    def forward(self, pixel_values: Tensor, moment: Tensor | None = None) -> Tensor:
        """The features of an image; or of a moment of a video, whose marks may be given, (3,)."""
        first, *stacked = self.features(pixel_values.to(self.model.dtype))
        by_token = [self.of_image.expand(len(first), -1)] if self.by_token else []
        marks = [self.marks()] if self.is_marked else []
        if self.is_timed:
            one = torch.tensor([0.0, 1.0, 0.0]) if moment is None else moment
            marks.append(one.expand(len(first), -1))
        return torch.cat([part.to(self.carried) for part in (first, *by_token, *stacked, *marks)], -1)[None]

    def marks(self) -> Tensor:
        """The marks of the tokens of an image, (image tokens, 4)."""
        return marks_of_image(*self.grid)

    def counted(self, marks: Marks) -> Tensor:
        """What the cache adds up over tokens, whole numbers of float32, (1, q): how many positions less than tokens an
        image has, at its last token."""
        return marks.skipped(counts_time=self.counts_time)

    def features(self, pixels: Tensor) -> list[Tensor]:
        """The features of an image's tokens, (image tokens, hidden), then the deepstack features of the same tokens, if
        any."""
        return [self.model.model.get_image_features(pixel_values=pixels).pooler_output[0]]

    def embedded(self, tokens: Tensor) -> list[Tensor]:
        """The embeddings of tokens, (1, q, hidden), and what else the language model reads by token, (1, q, width).

        Args:
            tokens: (1, q); what is read for image tokens is replaced.
        """
        config = self.model.config
        if config.image_token_id >= config.get_text_config().vocab_size:  # the table has no row for it
            tokens = torch.where(tokens == config.image_token_id, 0, tokens)
        return [self.model.get_input_embeddings()(tokens)]

    def given(self, pixels: Tensor, tokens: Tensor, prompt: int | None = None) -> dict[str, Tensor]:
        """The arguments with which the model itself takes an image beside tokens.

        Args:
            pixels: (1, 3, height, width).
            tokens: (1, n), with as many image tokens as there are features.
            prompt: how many of the tokens are those of the prompt; by default all.
        """
        return {"pixel_values": pixels}

    def arguments(self, call: LanguageCall) -> dict[str, Any]:
        """How the model is asked for logits beside `inputs_embeds` and its cache."""
        return {"position_ids": call.places}

    @contextmanager
    def adapted(self) -> Iterator[None]:
        """Parts of the language model are others while it is called."""
        yield

    @contextmanager
    def mended(self) -> Iterator[None]:
        """The model's own call works for a while, if a version of transformers has a defect."""
        yield

    def is_image(self, tokens: Tensor) -> Tensor:
        return tokens == self.model.config.image_token_id

    @property
    def patch_grid(self) -> tuple[int, int]:
        """How many rows and columns of patches the image has."""
        return self.shape[0] // self.patch_size, self.shape[1] // self.patch_size

    @property
    def layout(self) -> dict[str, Any]:
        """How a processor arranges patches as rows: arguments of `pixels_of_patches`."""
        moments = {"moments_first": True} if self.moments_first else {}
        return {"merged": self.row_merge, "channels_last": self.channels_last, **moments}

    def patches_of(self, pixels: Tensor) -> Tensor:
        """The patches of an image, (1, 3, height, width) or (3, height, width), in the order of the model.

        Returns:
            (patches, 3, patch size, patch size); if `channels_last`, (patches, patch size, patch size, 3).
        """
        patch, merged, (rows, columns) = self.patch_size, self.row_merge, self.patch_grid
        parts = pixels.reshape(3, rows // merged, merged, patch, columns // merged, merged, patch)
        patches = parts.permute(1, 4, 2, 5, 0, 3, 6).reshape(rows * columns, 3, patch, patch)
        return patches.permute(0, 2, 3, 1) if self.channels_last else patches


def features_dtype(model: Any) -> torch.dtype:
    """The type of features and embeddings: a model that computes in bfloat16 has them in float16."""
    return torch.float32 if model.dtype == torch.float32 else torch.float16


class FixedTower(Tower):
    """A tower whose table of positions is of one size of images."""

    def __init__(self, model: Any, size: Size | None):
        super().__init__(model, size)
        if self.size != self.usual_size:
            raise LanguageModelError(
                f"the image size is {self.size}, and this {model.config.model_type} takes {self.usual_size} only"
            )


def _one(size: int | list[int] | tuple[int, ...]) -> int:
    """The size of a square that a configuration may give for both directions."""
    return int(size[0] if isinstance(size, list | tuple) else size)


@contextmanager
def exchanged(holder: Any, name: str, function: Any) -> Iterator[None]:
    """A method of an object is another function for a while.

    Raises:
        LanguageModelError: the object has no such method, in another version of transformers.
    """
    if not hasattr(holder, name):
        raise LanguageModelError(f"{type(holder).__name__} of this version of transformers has no {name}")
    setattr(holder, name, function)
    try:
        yield
    finally:
        delattr(holder, name)

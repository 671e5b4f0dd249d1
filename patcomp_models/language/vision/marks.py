"""Marks: numbers behind each embedding that tell whether a token belongs to an image, and its place there.

Apple's engines tell a language model no more than embeddings and positions. The first mark is the row of the token in
its image, counted from 1, and 0 for text; the second is its column; the others say how many rows and columns the image
has. All are exact in float16 up to 2,048.

Of models whose videos have positions in time, three further marks say which moment of how many the image is, and how
many positions it is behind the first moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MARK_COLUMNS, MOMENT_COLUMNS = 4, 3
_DIGIT = 256
"""The caches count positions in two digits of so many values, which every floating type has exactly."""


def marks_of_image(rows: int, columns: int) -> Tensor:
    """The marks of the tokens of an image, (rows * columns, 4)."""
    index = torch.arange(rows * columns)
    sizes = torch.full_like(index, rows), torch.full_like(index, columns)
    return torch.stack([index // columns + 1, index % columns, *sizes], -1)


@dataclass(frozen=True)
class Marks:
    """The marks of new tokens, each (1, q)."""

    row: Tensor
    """In an image; -1 for text."""
    column: Tensor
    rows: Tensor
    """Of the image."""
    columns: Tensor
    moment: Tensor | float = 0.0
    """Of a video."""
    moments: Tensor | float = 1.0
    """Of the video."""
    time: Tensor | float = 0.0
    """How many positions the moment is behind the first."""

    @classmethod
    def of(cls, marks: Tensor) -> Marks:
        """Read marks, (1, q, 4), or (1, q, 7) with those of moments."""
        row, *others = marks.float().unbind(-1)
        return cls(row - 1, *others)

    @property
    def is_image(self) -> Tensor:
        return self.row > -0.5

    def starts(self, places: Tensor) -> Tensor:
        """The place of the first token of the image or video of each token, (1, q) of float32; nonsense for text."""
        return places.float() - (self.moment * self.rows + self.row) * self.columns - self.column

    @property
    def is_last(self) -> Tensor:
        """Whether a token is the last of its image or video."""
        is_last = self.is_image & (self.row == self.rows - 1) & (self.column == self.columns - 1)
        return is_last & (torch.as_tensor(self.moment) == self.moments - 1)

    def skipped(self, *, counts_time: bool = False) -> Tensor:
        """How many positions less than tokens an image has, for its last token; 0 for all others, (1, q) of float32.

        An image takes as many positions as its longer side has tokens.

        Args:
            counts_time: whether the text behind a video also begins behind the position of its last moment.
        """
        taken = torch.maximum(self.rows, self.columns)
        if counts_time:
            taken = torch.maximum(taken, torch.as_tensor(self.time) + 1)
        return torch.where(self.is_last, self.moments * self.rows * self.columns - taken, 0.0)

    def positions(self, places: Tensor, skipped_before: Tensor) -> Tensor:
        """Positions in time, row and column (M-RoPE, Wang et al. 2024, arXiv:2409.12191), (3, 1, q).

        Args:
            places: (1, q), how many tokens are before each.
            skipped_before: (1, q), how many positions less than tokens the images before each have.
        """
        here = places.float() - skipped_before
        start = self.starts(here)
        return torch.stack([torch.where(self.is_image, start + d, here) for d in (self.time, self.row, self.column)])


def skipped_before(skipped: Tensor, counted: Tensor, offset: Any) -> tuple[Tensor, Tensor]:
    """How many positions less than tokens the images before each new token have, and those up to each, (1, q).

    Args:
        skipped: of the new tokens, (1, q).
        counted: what was skipped up to each token of earlier calls, (n,), and anything behind them.
        offset: the number of tokens of earlier calls.
    """
    earlier = torch.where(torch.arange(counted.shape[0]) == offset - 1, counted, 0.0).sum()
    after = earlier + skipped.cumsum(-1)
    return after - skipped, after


def as_digits(counts: Tensor) -> Tensor:
    """Whole numbers from -65,536 to 65,535, (n,), as digits, (n, 2)."""
    high = (counts / _DIGIT).floor()
    return torch.stack([high, counts - high * _DIGIT], -1)


def from_digits(digits: Tensor) -> Tensor:
    """Whole numbers, (n,) of float32, from digits, (n, 2)."""
    high, low = digits.float().unbind(-1)
    return high * _DIGIT + low

"""Marks: two numbers behind each embedding that tell whether a token belongs to an image, and its row and column there.

Apple's engines tell a language model no more than embeddings and positions. The first mark is the row of the token in
its image, counted from 1, and 0 for text; the second is its column. Both are exact in float16 up to 2,048.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MARK_COLUMNS = 2


def marks_of_image(side: int) -> Tensor:
    """The marks of the tokens of an image, (side * side, 2)."""
    index = torch.arange(side * side)
    return torch.stack([index // side + 1, index % side], -1)


@dataclass(frozen=True)
class Marks:
    """The marks of new tokens."""

    is_image: Tensor
    """(1, q)"""
    row: Tensor
    """(1, q), in an image; -1 for text"""
    column: Tensor
    """(1, q)"""

    @classmethod
    def of(cls, marks: Tensor) -> Marks:
        """Read marks, (1, q, 2)."""
        marks = marks.float()
        return cls(marks[..., 0] > 0.5, marks[..., 0] - 1, marks[..., 1])

    def ends(self, side: int) -> Tensor:
        """Which tokens are the last of an image, (1, q) of float32."""
        return ((self.row == side - 1) & (self.column == side - 1)).float()

    def starts(self, places: Tensor, side: int) -> Tensor:
        """The place of the first token of the image of each token, (1, q) of float32; nonsense for text."""
        return places.float() - self.row * side - self.column

    def positions(self, places: Tensor, images_before: Tensor, side: int) -> Tensor:
        """Positions in time, row and column (M-RoPE, Wang et al. 2024, arXiv:2409.12191), (3, 1, q).

        An image of side * side tokens takes `side` positions.

        Args:
            places: (1, q), how many tokens are before each.
            images_before: (1, q), how many images end before each.
            side: how many tokens a row of an image has.
        """
        here = places.float() - images_before * (side * side - side)
        start = self.starts(here, side)
        return torch.stack([torch.where(self.is_image, start + d, here) for d in (0, self.row, self.column)])


def images_before(ends: Tensor, counted: Tensor, offset: Any) -> tuple[Tensor, Tensor]:
    """How many images end before each new token, and up to each, (1, q).

    Args:
        ends: which new tokens are the last of an image, (1, q).
        counted: how many images ended up to each token of earlier calls, (n,), and anything behind them.
        offset: the number of tokens of earlier calls.
    """
    earlier = torch.where(torch.arange(counted.shape[0]) < offset, counted, 0.0).amax()
    after = earlier + ends.cumsum(-1)
    return after - ends, after

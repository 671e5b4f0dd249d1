"""How patterns of chunks of tokens are written: parts, whose shapes have a letter for each size, and their masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patcomp.authoring import AtenSource
from patcomp.patterns import ANY, Attr, check, pattern
from patcomp.patterns.match import Match
from patterns_catalog.triangles import Triangle, triangle_of

INFINITY = float("inf")
part = pattern(is_shared=True)
"""Declares a pattern of a part of a construct, whose inner values other parts read as well."""


def shaped(parts: Mapping[Any, str]) -> Any:
    """Whether the parts of a match are float32, or masks, of shapes written with a letter for each size, `"bhtk"`."""

    def hold(match: Match) -> bool:
        sizes = {"1": 1}
        for part, letters in parts.items():
            value = match[part]
            if value is None:
                continue  # of an alternative that was not taken
            if value.dtype not in ("f32", "i1") or value.rank != len(letters):
                return False
            for letter, size in zip(letters, value.shape, strict=True):
                if size is None or sizes.setdefault(letter, size) != size:
                    return False
        return True

    return check("the shapes are those of chunks", hold)


def triangle(name: str, is_upper: bool, diagonal: int) -> Any:
    """Whether the mask of a capture, if it matched, is a triangle."""

    def hold(match: Match) -> bool:
        mask = match[name]
        return mask is None or triangle_of(mask) == Triangle(mask.shape[-1], is_upper, diagonal)

    return check(f"{name} is the {'upper' if is_upper else 'lower'} triangle from diagonal {diagonal}", hold)


def is_last(position: Attr, x: Any, dim: int) -> Any:
    """Whether a position is that of the last element of a dimension, counted from either end."""
    return check(
        f"{position.name} is the last one", lambda match: match[position] in (-1, (match[x].shape[dim] or 0) - 1)
    )


class Parts:
    """Parts of a pattern, with the shapes that they must have."""

    def __init__(self, a: AtenSource):
        self.a = a
        self.shapes: dict[Any, str] = {}

    def has(self, part: Any, letters: str) -> Any:
        """A part, which must have a shape."""
        self.shapes[part] = letters
        return part

    def unsqueezed(self, x: Any, letters: str) -> Any:
        return self.has(self.a.unsqueeze(x, dim=ANY), letters)

    def where(self) -> list[Any]:
        """The conditions of the shapes."""
        return [shaped(self.shapes)]

"""The words that arguments of ops may be, and the numbers that stand for words in PyTorch's enumerations."""

from __future__ import annotations

from typing import Any

_WORDS: dict[str, tuple[Any, ...]] = {
    "approximate": ("none", "tanh"),
    "rounding_mode": (None, "trunc", "floor"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "interpolation": ("linear", "lower", "higher", "midpoint", "nearest"),
    "side": (None, "left", "right"),
    "norm": (None, "forward", "backward", "ortho"),
    "mode": ("constant", "reflect", "replicate", "circular", "nearest", "reduced", "complete", "r"),
    "pad_mode": ("constant", "reflect", "replicate", "circular"),
    "padding": ("valid", "same"),
    "padding_side": ("right", "left"),
    "indexing": ("ij", "xy"),
    "ord": ("fro", "nuc"),
    "UPLO": ("L", "U"),
}
"""By the argument's name in PyTorch's schemas. A word that an op does not have is refused by PyTorch's kernel."""

_NUMBERED: dict[str, tuple[int, ...]] = {
    "reduction": (0, 1, 2),
    "interpolation_mode": (0, 1, 2),
    "padding_mode": (0, 1, 2),
    "mode": (0, 1, 2),
}
"""The integers that an argument takes as names: of a reduction, for example, none, mean and sum."""


def words_of(name: str, type_: str) -> tuple[Any, ...]:
    """All values of an argument that is a word or stands for one; empty for another argument.

    Args:
        name: the argument's name.
        type_: its type, as PyTorch's schemas (`str?`) or Core AI's ops (`none|tanh|sigmoid`) declare it.
    """
    if "|" in type_:
        return tuple(type_.split("|"))
    if type_.startswith("str"):
        return _WORDS.get(name, ())
    return _NUMBERED.get(name, ()) if type_ == "int" else ()

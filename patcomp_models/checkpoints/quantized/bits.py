"""Integers out of packed words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def from_words(packed: Tensor, bits: int, axis: int, order: Sequence[int] | None = None) -> Tensor:
    """The integers of 32-bit words, the lowest bits first.

    Args:
        packed: int32.
        bits: of an integer, which divide 32.
        axis: along which integers follow each other.
        order: the place of each integer of a word among them, if they do not follow each other.

    Returns:
        uint8, longer along the axis.
    """
    words = packed.contiguous().numpy().view(np.uint32)
    count = 32 // bits
    made = np.empty((*words.shape, count), np.uint8)
    for place in range(count):
        at = place if order is None else order[place]
        made[..., at] = (words >> np.uint32(bits * place)) & np.uint32((1 << bits) - 1)
    shape = list(words.shape)
    shape[axis] *= count
    return torch.from_numpy(np.moveaxis(made, -1, axis % words.ndim + 1).reshape(shape))


def from_stream(packed: Tensor, bits: int, count: int) -> Tensor:
    """The integers of rows that are streams of bits, the lowest first; an integer may cross words.

    Args:
        packed: (..., words).
        bits: of an integer, at most 8.
        count: integers of a row.

    Returns:
        uint8, (..., count).
    """
    raw = packed.contiguous().view(torch.uint8).numpy()
    rows = raw.reshape(-1, raw.shape[-1])
    made = np.empty((len(rows), count), np.uint8)
    for number, row in enumerate(rows):  # a row at a time, because each bit becomes a byte
        stream = np.unpackbits(row, count=count * bits, bitorder="little").reshape(count, bits)
        made[number] = np.packbits(stream, axis=-1, bitorder="little")[:, 0]
    return torch.from_numpy(made.reshape(*raw.shape[:-1], count))


def nibbles(packed: Tensor, *, high_first: bool = False) -> Tensor:
    """Two integers of 4 bits for each byte; uint8, twice as long along the last axis."""
    low, high = packed & 15, packed >> 4
    return torch.stack([high, low] if high_first else [low, high], -1).flatten(-2)


def signed_integers(values: Tensor, bits: int) -> Tensor:
    """Integers that were stored with half their range added; int8."""
    return (values.to(torch.int16) - (1 << (bits - 1))).to(torch.int8)

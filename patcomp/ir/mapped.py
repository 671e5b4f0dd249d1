"""Arrays for new weights. Large arrays are memory-mapped files, so that a conversion never holds all weights in
memory."""

from __future__ import annotations

import math
import tempfile

import numpy as np

_MAPPED = 2**20
"""From this many bytes on, an array is in a file."""


def mapped(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new array; its file has no name, and is gone with the array."""
    if math.prod(shape) * dtype.itemsize < _MAPPED:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="patcomp-") as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)

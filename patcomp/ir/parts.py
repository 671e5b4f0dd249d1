"""Large weights in parts, so that not all of their elements are in memory in a wider type at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

_PART = 1 << 22
"""The elements of a part; a head of a language model has a hundred times as many."""


def in_parts(shape: Sequence[int], axis: int, blocks: int) -> Iterator[tuple[slice, slice]]:
    """Slices of an axis of a weight, of some million elements each, and of its blocks along that axis.

    Args:
        shape: of the weight.
        axis: that is cut.
        blocks: how many there are along the axis, each of equally many elements; 1 for one that all parts share.
    """
    size = shape[axis] // blocks if blocks > 1 else 1
    step = max(_PART * shape[axis] // max(size * math.prod(shape), 1), 1)
    for start in range(0, shape[axis] // size, step):
        place = slice(start, start + step)
        yield slice(start * size, (start + step) * size), place if blocks > 1 else slice(None)

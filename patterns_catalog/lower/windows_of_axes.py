"""Windows along an axis whose places are known now or computed, for resizes and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patterns_catalog.computed import Computed
from patterns_catalog.lower.indexing import take
from patterns_catalog.sizes import sizes_of


def taken_rows(c: Coreai, x: Value, axis: int, taps: Any) -> tuple[Value, list[int]]:
    """The slices of an axis at each row of taps, these two axes first; and how to move the axes of `x` back."""
    front = [axis, *(other for other in range(x.rank) if other != axis)]
    moved = c.transpose(x, front)
    places = taps.value if isinstance(taps, Computed) else c.constant(taps.astype(np.int32))
    rows = take(c, moved, 0, c.reshape(places, [-1]))
    return c.reshape(rows, [*sizes_of(c, places), *sizes_of(c, moved)[1:]]), np.argsort(front).tolist()


def at_taps(c: Coreai, numbers: Any, element: str, rank: int) -> Value:
    """Numbers of each tap, with axes after them for what the taps read."""
    value = numbers.value if isinstance(numbers, Computed) else c.constant(numbers, element)
    return c.expand_dims(value, [*range(2, rank)]) if rank > 2 else value

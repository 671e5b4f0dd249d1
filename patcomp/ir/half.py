"""Which constants float16 can hold."""

from __future__ import annotations

import numpy as np

from patcomp.ir.blobs import BlobStore
from patcomp.ir.constants import attribute_values
from patcomp.ir.xdsl import Operation

LARGEST = 65504.0
"""The largest number of float16."""

STANDS_FOR_MINUS_INFINITY = -1e30
"""Masks hold numbers below this one in the place of minus infinity."""

_MASK = 2**24
"""The most elements of a constant that may be a mask."""


def beyond_half(op: Operation, blobs: BlobStore) -> float | None:
    """The element of a constant that float16 cannot hold; None if there is none.

    Infinity can be held, and what stands for minus infinity in a mask becomes float16's least number.
    """
    values = attribute_values(op.properties["value"], blobs)
    if values is None or not values.size or values.dtype.kind != "f" or (values.size < _MASK and _is_mask(values)):
        return None
    for part in np.array_split(values.reshape(-1), max(1, values.size // 2**20)):
        finite = part[np.isfinite(part)]
        if finite.size and float(np.abs(finite).max()) > LARGEST:
            return float(finite[np.abs(finite).argmax()])
    return None


def _is_mask(values: np.ndarray) -> bool:
    """Whether every number of a constant that float16 cannot hold stands for minus infinity: it is below -1e30, or all
    other numbers are 0."""
    outside = np.abs(values) > LARGEST
    return bool(
        (values[outside] < np.float64(STANDS_FOR_MINUS_INFINITY)).all()
        or ((values[outside] < 0).all() and not values[~outside].any())
    )

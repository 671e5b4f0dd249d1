"""Rotary position embeddings as a composite."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import (
    Rejected,
    composites,
)
from patterns_catalog.sizes import sizes_of, view_sizes
from patterns_catalog.slices import slice_axis


@composites.define
@composite(
    "rope",
    inputs=("input", "cos", "sin", "position_ids", "freqs"),
    attributes=("scale", "base", "dims", "interleaved"),
)
def rope(
    c: Coreai, x: Value, cos: Value | None = None, sin: Value | None = None, positions: Value | None = None,
    frequencies: Value | None = None, *, scale: float, base: float, dims: int | None, interleaved: bool,
) -> Value:  # fmt: skip
    """y1 = cos x1 - sin x2, y2 = sin x1 + cos x2 for the pairs of the last axis.

    `cos` and `sin` have a value for each pair. If the tables are missing, they are computed from positions, (batch,
    sequence), times frequencies, times `scale`; by default the frequencies are 1 / base^(i / pairs).
    """
    last = x.rank - 1
    width = x.shape[last]
    assert width is not None
    turned = width if dims is None else dims
    half = turned // 2
    if cos is None or sin is None:
        if positions is None:
            raise Rejected("rope needs tables (cos and sin) or positions")
        cos, sin = _tables(c, x, positions, frequencies, half, scale, base)
    if interleaved:
        first, second = (slice_axis(c, x, last, start, turned, 2) for start in (0, 1))
    else:
        first, second = slice_axis(c, x, last, 0, half), slice_axis(c, x, last, half, turned)
    y1 = c.broadcasting_sub(c.broadcasting_mul(cos, first), c.broadcasting_mul(sin, second))
    y2 = c.broadcasting_add(c.broadcasting_mul(sin, first), c.broadcasting_mul(cos, second))
    if interleaved:
        pairs = c.concat(x.rank, [c.expand_dims(y1, [x.rank]), c.expand_dims(y2, [x.rank])])
        parts = [c.reshape(pairs, view_sizes((*y1.shape[:-1], turned), [*sizes_of(c, y1)[:-1], turned]))]
    else:
        parts = [y1, y2]
    if turned < width:
        parts.append(slice_axis(c, x, last, turned, width))
    return parts[0] if len(parts) == 1 else c.concat(last, parts)


def _tables(
    c: Coreai, x: Value, positions: Value, frequencies: Value | None, half: int, scale: float, base: float
) -> tuple[Value, Value]:  # fmt: skip
    """Cosine and sine of the angles of all pairs, (batch, 1, sequence, pairs), computed in float32."""
    if frequencies is None:
        frequencies = c.constant(powers(half, scale, base))
    elif scale != 1.0:
        frequencies = c.broadcasting_mul(frequencies, scale)
    angles = c.broadcasting_mul(c.cast(c.expand_dims(positions, [1, 3]), "f32"), frequencies)
    return c.cast(c.cos(angles), x.element_type), c.cast(c.sin(angles), x.element_type)


def powers(half: int, scale: float, base: float) -> np.ndarray:
    """scale / base^(i / half) for each pair, in float32."""
    exponents = np.arange(half, dtype=np.float32) / np.float32(half)
    return (1.0 / base ** exponents.astype(np.float64)).astype(np.float32) * np.float32(scale)

"""Windows and diagonals: reads at computed positions, also of dynamic dimensions."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.indexing import take
from patterns_catalog.sizes import Size, plus, positions, size_of, sizes_of


def _places(c: Coreai, count: Size, step: int, start: int = 0) -> Value | np.ndarray:
    """`start`, `start + step` and so on, as many as `count` says."""
    if isinstance(count, int):
        return start + step * np.arange(count, dtype=np.int32)
    return c.broadcasting_add(c.broadcasting_mul(positions(c, count), step), start)


@lowering("aten.unfold", examples=[
    example("2x7x3xf32", 1, 3, 2), example("2x6xf32", -1, 2, 2), example("5xf32", 0, 5, 1), example("2x5xf32", 1, 1, 3),
    example("f32", 0, 1, 1),
])  # fmt: skip
def unfold(op: OpView, c: Coreai) -> Value:
    "windows along a dimension, whose elements are the last one of the result"
    x, window, step = op["self"], op.size, op.step
    if x.rank == 0:
        op.ignore("dimension", because="a 0-d tensor has one window")
        return c.reshape(x, [1])
    op.expect(isinstance(window, int) and isinstance(step, int), "unfold needs a static size and step; use constants")
    axis = op.dimension % x.rank
    size = size_of(c, x, axis)
    if isinstance(size, int):
        count: Size = (size - window) // step + 1
    else:
        last = c.broadcasting_sub(size, window)
        count = c.broadcasting_add(last if step == 1 else c.broadcasting_floor_divide(last, step), 1)
    starts = _places(c, count, step)
    if isinstance(starts, np.ndarray):
        places: Value | np.ndarray = (starts[:, None] + np.arange(window, dtype=np.int32)).reshape(-1)
    else:
        inside = c.constant(np.arange(window, dtype=np.int32))
        places = c.reshape(c.broadcasting_add(c.expand_dims(starts, [1]), inside), [-1])
    whole = window == step and isinstance(size, int) and size % window == 0
    taken = x if whole else take(c, x, axis, places)
    sizes = sizes_of(c, x)
    parted = c.reshape(taken, [*sizes[:axis], count, window, *sizes[axis + 1 :]])
    order = [other for other in range(parted.rank) if other != axis + 1]
    return c.transpose(parted, [*order, axis + 1]) if axis + 1 != x.rank else parted


@lowering("aten.diagonal", examples=[
    example("3x4xf32"), example("4x3x5xf32", 1, -1, 0), example("2x5x3xf32", -2, 1, 2), example("4x4xf32", 3),
])  # fmt: skip
def diagonal(op: OpView, c: Coreai) -> Value:
    "the elements whose places in two dimensions differ by `offset`, as the last dimension"
    x, offset = op["self"], op.offset
    first, second = op.dim1 % x.rank, op.dim2 % x.rank
    op.expect(isinstance(offset, int), "diagonal needs a static offset; export with fixed sizes")
    below, right = max(-offset, 0), max(offset, 0)
    lengths = [plus(c, size_of(c, x, first), -below), plus(c, size_of(c, x, second), -right)]
    numbers = [length for length in lengths if isinstance(length, int)]
    count: Size = min(numbers) if len(numbers) == 2 else c.broadcasting_minimum(*lengths)
    columns = [_places(c, count, 1, start) for start in (below, right)]
    columns = [c.constant(column) if isinstance(column, np.ndarray) else column for column in columns]
    index = c.concat(1, [c.expand_dims(column, [1]) for column in columns])
    others = [axis for axis in range(x.rank) if axis not in (first, second)]
    taken = c.gather_nd(c.transpose(x, [first, second, *others]), index)
    return c.transpose(taken, [*range(1, taken.rank), 0]) if others else taken

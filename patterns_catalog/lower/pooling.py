"""Max pools, of fixed and of adaptive windows, with the positions of the maxima."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.pooling import fitted
from patterns_catalog.lower.average_pooling import adaptive_windows, per_window
from patterns_catalog.lower.indexing import take


@lowering("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices", name="max_pool", examples=[
    example("1x2x7x8xf32", [3, 3], [2, 2], [1, 1]), example("1x2x7x8xf32", [2, 3], [], [0, 1], [2, 1], True),
    example("1x1x5x5xf32", [2, 2], [3, 3], [1, 1], [1, 1], True), example("2x6x6xf32", [2, 2]),
    example("2x4x5x6xf32", [2, 3, 2], [2, 1, 2], [1], [1], True, op="aten.max_pool3d_with_indices"),
])  # fmt: skip
def max_pool(op: OpView, c: Coreai) -> list[Value | None]:
    """Pad with the smallest value so that the windows fit exactly, then pool.

    The right padding follows from PyTorch's result size, whose rounding rule (the last window starts
    inside the input or its left padding) differs from the runtime's.
    """
    x = op["self"]
    axes = 2 if op.op_name == "aten.max_pool2d_with_indices" else 3
    op.ignore("ceil_mode", because="the result type has the size that it gives, unless a size is dynamic")
    kernel, stride, padding, dilation = (
        list(given) * axes if len(given) == 1 else list(given)
        for given in (op.kernel_size, op.stride or op.kernel_size, op.padding, op.dilation)
    )
    output, sizes = ([size or 0 for size in shape[-axes:]] for shape in (op.result.shape, x.shape))  # 0: dynamic
    if op.used(1):
        op.expect(x.is_static, "the indices of a max pool need a static shape; export with fixed sizes")
        starts = [np.arange(count) * step - before for count, step, before in zip(output, stride, padding, strict=True)]
        windows = [
            [[at for at in range(start, start + step * count, step) if 0 <= at < size] for start in of]
            for of, step, count, size in zip(starts, dilation, kernel, sizes, strict=True)
        ]
        op.expect(all(itertools.chain(*windows)), "max pool has an empty window, whose index is undefined")
        return _with_positions(op, c, x, windows)
    unbatched = x.rank == axes + 1
    if unbatched:
        x = c.expand_dims(x, [0])
    lowest = -np.inf if is_float(x.element_type) else np.iinfo(numpy_dtype(x.element_type)).min

    def pooled(x: Value, after: Sequence[int]) -> Value:
        amounts = [0, 0, 0, 0, *(amount for pair in zip(padding, after, strict=True) for amount in pair)]
        if any(amounts):
            x = c.pad(x, amounts, c.constant(lowest, x.element_type), padding_mode="constant")
        return (c.maxpool2d if axes == 2 else c.maxpool3d)(x, kernel, stride, dilation, False)

    if None in x.shape[2:]:
        y = fitted(c, x, op.result.shape[-axes:], stride, padding, op.ceil_mode, pooled)
    else:
        needed = [
            (count - 1) * step + spread * (width - 1) + 1
            for count, step, spread, width in zip(output, stride, dilation, kernel, strict=True)
        ]
        y = pooled(x, [max(0, n - size - p) for n, size, p in zip(needed, sizes, padding, strict=True)])
    return [c.shrink_dims(y, [0]) if unbatched else y, None]


@lowering("aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d", examples=[
    example("1x2x7x8xf32", [3, 3]), example("2x3x4xf32", [5, 2]),
    example("1x2x4x5x3xf32", [3, 2, 3], op="aten.adaptive_max_pool3d"),
])  # fmt: skip
def adaptive_max_pool(op: OpView, c: Coreai) -> list[Value | None]:
    "the windows of the adaptive average pool, one axis after the other"
    x, output = op["self"], list(op.output_size)
    if op.used(1):
        op.expect(x.is_static, "the indices of a max pool need a static shape; export with fixed sizes")
        windows = [
            [list(range(*window)) for window in adaptive_windows(size, count)]
            for size, count in zip(x.static_shape[-len(output) :], output, strict=True)
        ]
        return _with_positions(op, c, x, windows)
    return [per_window(c, "max", x, output), None]


def _with_positions(op: OpView, c: Coreai, x: Value, windows: Sequence[Sequence[list[int]]]) -> list[Value | None]:
    """The maxima of windows, of which each axis has a list of positions for each result, and their places.

    A place counts the elements of the plane or volume in row-major order. As in ATen's loops the first of equal
    maxima counts, and the last NaN. All windows are gathered at once; shorter ones repeat an element of theirs.
    """
    axes, sizes, output = len(windows), x.static_shape[-len(windows) :], [len(of) for of in windows]
    places = np.zeros([1] * (2 * axes), np.int32)  # the results, and the elements of the window of each
    for axis, of in enumerate(windows):
        longest = max(map(len, of))
        positions = np.array([window + [window[0]] * (longest - len(window)) for window in of], np.int32)
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = positions.shape
        places = places + positions.reshape(shape) * math.prod(sizes[axis + 1 :])
    places = places.reshape(math.prod(output), -1)
    planes = math.prod(x.static_shape[:-axes])
    values = take(c, c.reshape(x, [planes, math.prod(sizes)]), 1, places.reshape(-1))
    values = c.reshape(values, [planes, *places.shape])
    largest = c.reduce_max(values, [2])
    nowhere, position = c.constant(np.int32(2**31 - 1)), c.constant(places)
    place = c.reduce_min(c.broadcasting_where(c.broadcasting_equal(values, largest), position, nowhere), [2])
    if is_float(x.element_type):
        unordered = c.broadcasting_not_equal(values, values)
        last = c.reduce_max(c.broadcasting_where(unordered, position, c.constant(np.int32(-1))), [2])
        place = c.broadcasting_where(c.broadcasting_not_equal(largest, largest), last, place)
    shape = list(op.result.static_shape)
    return [c.reshape(largest, shape), c.reshape(c.cast(place, op.results[1].element_type), shape)]

"""Pooling and resizing of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.ir.constants import numpy_dtype
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lowering.indexing import take


@lowering("aten.max_pool2d_with_indices", examples=[
    example("1x2x7x8xf32", [3, 3], [2, 2], [1, 1]), example("1x2x7x8xf32", [2, 3], [], [0, 1], [2, 1], True),
    example("1x1x5x5xf32", [2, 2], [3, 3], [1, 1], [1, 1], True), example("2x6x6xf32", [2, 2]),
])  # fmt: skip
def max_pool2d(op: OpView, c: Any) -> list[Value]:
    """Pad with the smallest value so that the windows fit exactly, then pool.

    The right padding follows from PyTorch's result size, whose rounding rule (the last window starts
    inside the input or its left padding) differs from the runtime's.
    """
    op.expect(not op.used(1), "the indices of max_pool2d")
    x = op["self"]
    unbatched = x.rank == 3
    if unbatched:
        x = c.expand_dims(x, [0])
    kernel, dilation, padding = op.kernel_size, op.dilation, op.padding
    stride = op.stride or kernel
    op.ignore("ceil_mode", because="the result type has the size that it gives")
    op.expect(x.is_static, "a pool of a dynamic shape")
    output = op.result.static_shape[-2:]
    amounts = [0, 0, 0, 0]
    for axis in range(2):
        needed = (output[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        amounts += [padding[axis], max(0, needed - x.static_shape[axis + 2] - padding[axis])]
    if any(amounts):
        lowest = -np.inf if is_float(x.element_type) else np.iinfo(numpy_dtype(x.element_type)).min
        x = c.pad(x, amounts, c.constant(lowest, x.element_type), padding_mode="constant")
    y = c.maxpool2d(x, kernel, stride, dilation, False)
    y = c.shrink_dims(y, [0]) if unbatched else y
    # nobody reads the indices, but the op has them as a result
    return [y, c.broadcast_to(c.constant(0, op.results[1].element_type), list(op.results[1].shape))]


@lowering("aten.upsample_nearest2d.vec", examples=[
    example("1x2x3x4xf32", None, [2.0, 2.0]), example("1x2x4x5xf32", [7, 9], None),
    example("1x1x5x5xf32", None, [1.7, 0.8]),
])  # fmt: skip
def upsample_nearest2d(op: OpView, c: Any) -> Value:
    "output pixel i is input pixel floor(i * scale), computed in float32 as PyTorch does"
    x = op.input
    op.ignore("output_size", because="the result type has it")
    op.expect(x.is_static, "a resize of a dynamic shape")
    for axis, size in ((2, op.result.static_shape[2]), (3, op.result.static_shape[3])):
        given = op.scale_factors[axis - 2] if op.scale_factors else None
        before = x.static_shape[axis]
        scale = np.float32(1.0 / given) if given else np.float32(before) / np.float32(size)
        source = np.minimum(np.floor(np.arange(size, dtype=np.float32) * scale), before - 1).astype(np.int32)
        factor = size // before
        if np.array_equal(source, np.repeat(np.arange(before), factor)):
            x = _repeat(c, x, axis, factor)
        else:
            x = take(c, x, axis, source)
    return x


def _repeat(c: Any, x: Value, axis: int, factor: int) -> Value:
    """Every slice along an axis `factor` times in a row."""
    if factor == 1:
        return x
    shape = list(x.static_shape)
    wide = c.broadcast_in_dims(c.expand_dims(x, [axis + 1]), [factor], [axis + 1])
    return c.reshape(wide, [*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]])

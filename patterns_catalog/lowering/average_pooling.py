"""The average pools that are no composites: of integers, and adaptive ones whose windows differ in size."""

from __future__ import annotations

from typing import Any

from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.normalization import compute_type
from patterns_catalog.composites.pooling import AveragePool


@lowering("aten.avg_pool2d", "aten.avg_pool3d", name="avg_pool of integers", examples=[
    example("1x2x5x6xsi64", [3, 2], [2, 2], [1, 0], True, False), example("2x5x6xsi64", [2, 2]),
    example("1x2x4x5x3xsi64", [2, 2, 2], divisor_override=3, op="aten.avg_pool3d"),
])  # fmt: skip
def integer_average_pool(op: OpView, c: Any) -> Value:
    "the sums divided toward zero"
    x, arguments = op["self"], AveragePool.of(op)
    op.expect((arguments.divisor_override or 1) > 0, "an average pool of integers with a negative divisor")
    axes = len(arguments.kernel)
    after, divisor = arguments.windows([size for size in x.shape[-axes:] if size is not None])
    total = arguments.total(c, x if x.rank == axes + 2 else c.expand_dims(x, [0]), after)
    count = c.constant(divisor, x.element_type)
    zero = c.constant(0, x.element_type)
    quotient = c.broadcasting_floor_divide(c.abs_(total), count)
    made = c.broadcasting_where(c.broadcasting_greater(zero, total), c.broadcasting_sub(zero, quotient), quotient)
    return made if x.rank == axes + 2 else c.shrink_dims(made, [0])


@lowering("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", examples=[
    example("1x2x7x8xf32", [3, 3]), example("2x5x4xf32", [3, 4]), example("1x2x3x4xf32", [5, 7]),
    example("1x2x4x5x3xf32", [3, 2, 3], op="aten._adaptive_avg_pool3d"),
])  # fmt: skip
def adaptive_average_pool(op: OpView, c: Any) -> Value:
    """One axis after the other, because all windows in a row have the same height: window i of n is
    [floor(i * size / n), ceil((i + 1) * size / n))."""
    x, output = op["self"], list(op.output_size)
    op.expect(is_float(x.element_type), "an average pool of integers")
    first = x.rank - len(output)
    op.expect(x.is_static, "an adaptive pool of dynamic sizes")
    made = c.cast(x, compute_type(x))
    for axis, count in enumerate(output, first):
        size = x.static_shape[axis]
        if count != size:
            windows = [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]
            made = c.concat(axis, [c.reduce_mean(_part(c, made, axis, *window), [axis]) for window in windows])
    return c.cast(made, x.element_type)


def _part(c: Any, x: Value, axis: int, start: int, end: int) -> Value:
    shape = x.static_shape
    starts = [start if i == axis else 0 for i in range(x.rank)]
    ends = [end if i == axis else size for i, size in enumerate(shape)]
    return c.slice_(x, starts, ends, [1] * x.rank)

"""Average pools without a composite: those of integers, and adaptive ones with windows of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rejected, example, lowering
from patterns_catalog.composites.normalization import compute_type
from patterns_catalog.composites.pooling import AveragePool
from patterns_catalog.lowering.shapes import slice_axis


@lowering("aten.avg_pool2d", "aten.avg_pool3d", name="avg_pool of integers", examples=[
    example("1x2x5x6xsi64", [3, 2], [2, 2], [1, 0], True, False), example("2x5x6xsi64", [2, 2]),
    example("1x2x4x5x3xsi64", [2, 2, 2], divisor_override=3, op="aten.avg_pool3d"),
])  # fmt: skip
def integer_average_pool(op: OpView, c: Coreai) -> Value:
    "the sum of each window, divided toward zero"
    x, arguments = op["self"], AveragePool.of(op)
    op.expect((arguments.divisor_override or 1) > 0, "an average pool of integers needs a positive divisor_override")
    axes = len(arguments.kernel)
    after, divisor = arguments.windows(x.shape[-axes:])
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
def adaptive_average_pool(op: OpView, c: Coreai) -> Value:
    """One axis after the other, because all windows in a row have the same height: window i of n is
    [floor(i * size / n), ceil((i + 1) * size / n))."""
    x, output = op["self"], list(op.output_size)
    op.expect(is_float(x.element_type), "an adaptive pool of integers is not supported; cast the input to float")
    op.expect(op.result.rank == x.rank, "an adaptive pool whose output_size has a size too few or too many")
    return c.cast(per_window(c, c.reduce_mean, c.cast(x, compute_type(x)), output), x.element_type)


def adaptive_windows(size: int, count: int) -> list[tuple[int, int]]:
    """Start and end of the windows by which an axis is pooled to `count` results."""
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def per_window(c: Coreai, function: Callable[..., Value], x: Value, output: Sequence[int]) -> Value:
    """A reduction of each adaptive window of the last axes, one axis after the other."""
    made = x
    for axis, count in enumerate(output, x.rank - len(output)):
        size = x.shape[axis]
        if count == size:
            continue
        if count == 1:
            made = function(made, [axis])
        elif size is None:
            raise Rejected("an adaptive pool to more than 1 needs a static size; export with that dimension fixed")
        else:
            windows = adaptive_windows(size, count)
            made = c.concat(axis, [function(slice_axis(c, made, axis, *window), [axis]) for window in windows])
    return made

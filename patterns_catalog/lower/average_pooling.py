"""Average pools without a composite: those of integers, and adaptive ones with windows of different sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rejected, example, formula, lowering
from patcomp.patterns.conditions import is_floating
from patterns_catalog.composites.norms import compute_type
from patterns_catalog.composites.pooling import AveragePool
from patterns_catalog.computed import Computed, minimum
from patterns_catalog.lower.windows_of_axes import at_taps, taken_rows
from patterns_catalog.sizes import Size, as_data, positions, size_of
from patterns_catalog.slices import slice_axis


@lowering("aten.avg_pool2d", "aten.avg_pool3d", name="avg_pool of integers", examples=[
    example("1x2x5x6xsi64", [3, 2], [2, 2], [1, 0], True, False), example("2x5x6xsi64", [2, 2]),
    example("1x2x4x5x3xsi64", [2, 2, 2], divisor_override=3, op="aten.avg_pool3d"),
])  # fmt: skip
def integer_average_pool(op: OpView, c: Coreai) -> Value:
    "the sum of each window, divided toward zero"
    x, axes = op["self"], 2 if op.op_name == "aten.avg_pool2d" else 3
    given = op.kernel_size, op.stride, op.padding, op.ceil_mode, op.count_include_pad, op.divisor_override
    arguments = AveragePool.of(op.result.shape[-axes:], *given)
    op.expect((arguments.divisor_override or 1) > 0, "an average pool of integers needs a positive divisor_override")
    total, count = arguments.sums(c, x if x.rank == axes + 2 else c.expand_dims(x, [0]))
    zero = c.constant(0, x.element_type)
    quotient = c.broadcasting_floor_divide(c.abs_(total), count)
    made = c.broadcasting_where(c.broadcasting_greater(zero, total), c.broadcasting_sub(zero, quotient), quotient)
    return made if x.rank == axes + 2 else c.shrink_dims(made, [0])


@formula("lower", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", where=lambda self, result: [
    is_floating(self).says("an adaptive pool of integers is not supported; cast the input to float"),
    (result.rank == self.rank).says("output_size of the adaptive pool has too few or too many sizes"),
], examples=[
    example("1x2x7x8xf32", [3, 3]), example("2x5x4xf32", [3, 4]), example("1x2x3x4xf32", [5, 7]),
    example("1x2x4x5x3xf32", [3, 2, 3], op="aten._adaptive_avg_pool3d"),
])  # fmt: skip
def adaptive_average_pool(c: Coreai, self: Value, output_size: Sequence[Size]) -> Value:
    """One axis after the other, because all windows in a row have the same height: window i of n is
    [floor(i * size / n), ceil((i + 1) * size / n))."""
    return c.cast(per_window(c, "mean", c.cast(self, compute_type(self)), output_size), self.element_type)


def adaptive_windows(size: int, count: int) -> list[tuple[int, int]]:
    """Start and end of the windows by which an axis is pooled to `count` results."""
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def per_window(c: Coreai, kind: str, x: Value, output: Sequence[Size]) -> Value:
    """The `mean` or `max` of each adaptive window of the last axes, one axis after the other."""
    made, function = x, c.reduce_mean if kind == "mean" else c.reduce_max
    for axis, count in enumerate(output, x.rank - len(output)):
        size = x.shape[axis]
        if isinstance(count, Value):
            raise Rejected("an adaptive pool needs a static output_size; export with that size fixed")
        if count == size:
            continue
        if count == 1:
            made = function(made, [axis])
        elif size is None:
            made = _of_open_size(c, kind, made, axis, count)
        else:
            windows = adaptive_windows(size, count)
            made = c.concat(axis, [function(slice_axis(c, made, axis, *window), [axis]) for window in windows])
    return made


def _of_open_size(c: Coreai, kind: str, x: Value, axis: int, count: int) -> Value:
    """The same windows along an axis of dynamic size: as many taps for each as the longest may have, of which those
    beyond the end of a window read its last place again."""
    size, number = Computed(c, as_data(c, size_of(c, x, axis))), np.arange(count, dtype=np.int32)
    first, last = size * number // count, (size * (number + 1) + (count - 1)) // count
    longest = c.reshape((size // count + 2).value, [])
    taps = first[:, None] + Computed(c, positions(c, longest))[None, :]
    parts, back = taken_rows(c, x, axis, minimum(taps, last[:, None] - 1))
    if kind == "max":
        made = c.reduce_max(parts, [1])
    else:
        inside = at_taps(c, taps < last[:, None], "i1", parts.rank)
        total = c.reduce_sum(c.broadcasting_where(inside, parts, c.constant(0, parts.element_type)), [1])
        length = Computed(c, c.cast((last - first)[:, None].value, parts.element_type))
        made = c.broadcasting_divide(total, at_taps(c, length, parts.dtype, parts.rank))
    return c.transpose(c.shrink_dims(made, [1]), back)

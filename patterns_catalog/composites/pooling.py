"""Average pools as composites."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value
from patcomp.patterns import composites
from patterns_catalog.composites.norms import compute_type
from patterns_catalog.computed import Computed, maximum, minimum
from patterns_catalog.sizes import Size, as_data, plus, positions, size_of
from patterns_catalog.slices import slice_axis

_INPUTS = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


@dataclass(frozen=True)
class AveragePool:
    """The arguments of PyTorch's average pools, one number for each spatial axis."""

    output: Shape
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    @classmethod
    def of(
        cls, output: Shape, kernel_size: list[int], stride: list[int], padding: list[int], ceil_mode: bool,
        count_include_pad: bool, divisor_override: int | None,
    ) -> AveragePool:  # fmt: skip
        """The pool of PyTorch's arguments, in which one number may stand for all axes."""
        axes = len(output)
        kernel, steps, before = (
            list(given) * axes if len(given) == 1 else list(given) for given in (kernel_size, stride, padding)
        )
        return cls(output, kernel, steps or kernel, before, ceil_mode, count_include_pad, divisor_override)

    def windows(self, sizes: Shape) -> tuple[list[int], np.ndarray]:
        """For an input of the given static sizes, the padding needed after it, and the divisor of each window."""
        axes = len(self.kernel)
        output, known = ([size or 0 for size in shape] for shape in (self.output, sizes))
        windows = [_windows(*of) for of in zip(known, output, self.kernel, self.stride, self.padding, strict=True)]
        divisor = np.ones((1, 1, *output), np.int32)
        for axis, (_, padded, inside) in enumerate(windows):
            count = np.array(padded if self.count_include_pad else inside, np.int32)
            divisor = divisor * count.reshape([1, 1, *([1] * axis), -1, *([1] * (axes - axis - 1))])
        if self.divisor_override is not None:
            divisor = np.full_like(divisor, self.divisor_override)
        if (divisor == divisor.flat[0]).all():
            divisor = divisor.reshape(-1)[0].reshape(())
        return [after for after, _, _ in windows], divisor

    def sums(self, c: Coreai, x: Value) -> tuple[Value, Value]:
        """The sum of each window of a batch, and the divisors, which broadcast with the sums."""
        if None not in x.shape[2:]:
            after, divisor = self.windows(x.shape[2:])
            return self.total(c, x, after), c.constant(divisor, x.element_type)
        total = fitted(c, x, self.output, self.stride, self.padding, self.ceil_mode, partial(self.total, c))
        same = not self.ceil_mode and (self.count_include_pad or not any(self.padding))
        if same or self.divisor_override:
            return total, c.constant(self.divisor_override or math.prod(self.kernel), x.element_type)
        counted = c.constant(1, "si32")
        for axis in range(2, x.rank):
            count = self._count(c, size_of(c, x, axis), size_of(c, total, axis), axis - 2)
            count = c.expand_dims(count, [*range(axis), *range(axis + 1, x.rank)])
            counted = c.broadcasting_mul(counted, count)
        return total, c.cast(counted, x.element_type)

    def _count(self, c: Coreai, size: Size, output: Size, axis: int) -> Value:
        """The number of elements that count, along an axis, in each window."""
        starts = Computed(c, positions(c, output)) * self.stride[axis] - self.padding[axis]
        length = Computed(c, as_data(c, size))
        ends = minimum(starts + self.kernel[axis], length + self.padding[axis])
        return (ends - starts if self.count_include_pad else minimum(ends, length) - maximum(starts, 0)).value

    def total(self, c: Coreai, x: Value, after: list[int]) -> Value:
        """The sum of each window of a batch."""
        pairs = [amount for pair in zip(self.padding, after, strict=True) for amount in pair]
        if any(pairs):
            x = c.pad(x, [0, 0, 0, 0, *pairs], c.constant(0, x.element_type), padding_mode="constant")
        return (c.sumpool2d if len(self.kernel) == 2 else c.sumpool3d)(
            x, self.kernel, self.stride, [1] * len(self.kernel)
        )

    def apply(self, c: Coreai, x: Value) -> Value:
        """The composite on an image or volume with a batch, or on one without."""
        axes = len(self.kernel)
        unbatched = x.rank == axes + 1
        if unbatched:
            x = c.expand_dims(x, [0])
        options = [c.constant(np.array(values, np.int32)) for values in (self.kernel, self.stride, self.padding)]
        options += [c.constant(flag) for flag in (self.ceil_mode, self.count_include_pad)]
        made = (avg_pool_2d if axes == 2 else avg_pool_3d)(
            x, *options, c.constant(self.divisor_override or 0, "si32"), arguments=self
        )
        return c.shrink_dims(made, [0]) if unbatched else made


def fitted(
    c: Coreai, x: Value, output: Shape, stride: list[int], padding: list[int], ceil_mode: bool,
    pool: Callable[[Value, list[int]], Value],
) -> Value:  # fmt: skip
    """A pool of a batch with dynamic sizes, of as many windows as PyTorch has.

    Without ceil mode, no window starts in the surplus padding. In ceil mode the last window may be cut, but it must
    start in the input or the padding before it.

    Args:
        output: the sizes of the result, as far as they are known.
        pool: pools a batch, given the padding after each axis.
    """
    if not ceil_mode:
        return pool(x, padding)
    made = pool(x, [before + step - 1 for before, step in zip(padding, stride, strict=True)])
    for axis, (known, step, before) in enumerate(zip(output, stride, padding, strict=True), 2):
        end: Size | None = known
        if end is None:
            size, count = size_of(c, x, axis), size_of(c, made, axis)
            last = c.broadcasting_mul(plus(c, count, -1), step)
            outside = c.not_(c.broadcasting_greater(plus(c, size, before), last))
            end = c.broadcasting_sub(count, c.cast(outside, "si32"))
        shape = (*made.shape[:axis], known, *made.shape[axis + 1 :])
        made = slice_axis(c, made, axis, 0, end, result_type=tensor(shape, made.element_type))
    return made


def _windows(size: int, output: int, kernel: int, stride: int, padding: int) -> tuple[int, list[int], list[int]]:
    """Along one axis: the padding needed after the input, and how many elements each window has with and without any.

    Elements that ceil mode adds beyond the padding are not counted, as in PyTorch.
    """
    starts = [index * stride - padding for index in range(output)]
    padded = [min(start + kernel, size + padding) - start for start in starts]
    inside = [min(start + kernel, size) - max(start, 0) for start in starts]
    return max(0, starts[-1] + kernel - size), padded, inside


def _composite(axes: int) -> Callable[..., Value]:
    @composites.define
    @composite(f"avg_pool_{axes}d", inputs=_INPUTS)
    def average(c: Coreai, x: Value, *options: Value, arguments: AveragePool) -> Value:
        """The sum of each window of the padded input, divided by the number of elements that count.

        The options are constants, which the body does not read: it has constants of its own for them.
        """
        wide = c.cast(x, compute_type(x))
        return c.cast(c.broadcasting_divide(*arguments.sums(c, wide)), x.element_type)

    return average


avg_pool_2d = _composite(2)


avg_pool_3d = _composite(3)

"""Average pools that export keeps whole, as composites."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Rule, condition, example, formula
from patcomp.patterns.conditions import is_floating
from patterns_catalog.composites.pooling import AveragePool

_INTEGERS = "the average pool of integers is not a composite"


def _average_pool(axes: int, name: str) -> Rule:
    def kernel(size: int) -> list[int]:
        return [size] * axes

    image = "x".join(["1x2x7x8", "6"][: axes - 1]) + "xf32"
    examples = [
        example(image, kernel(2)), example(image, kernel(3), kernel(2), kernel(1)),
        example(image, kernel(3), kernel(2), kernel(1), False, False),
        example(image, kernel(3), kernel(2), kernel(1), True, False),
        example(image, kernel(3), kernel(2), kernel(1), True),
        example(image, kernel(2), kernel(3), kernel(1), True, False, 3), example(image, kernel(2), divisor_override=5),
        example(image.partition("x")[2], [3, *kernel(2)[1:]], kernel(2), [1, *kernel(0)[1:]], False, False),
    ]  # fmt: skip

    @formula("recover", f"aten.avg_pool{axes}d", name=name, examples=examples,
             where=lambda self: [is_floating(self).says(_INTEGERS)])  # fmt: skip
    def rule(
        c: Coreai, self: Value, kernel_size: list[int], stride: list[int], padding: list[int], ceil_mode: bool,
        count_include_pad: bool, divisor_override: int | None, result: ValueType,
    ) -> Value:  # fmt: skip
        "the mean of each window, the padding counted or not"
        given = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        return AveragePool.of(result.shape[-axes:], *given).apply(c, self)

    return rule


average_pool_2d = _average_pool(2, "avg_pool_2d")
average_pool_3d = _average_pool(3, "avg_pool_3d")


@condition("{output} divides the last sizes of {x}, into windows that are all alike")
def _are_alike(x: Value, output: list[int]) -> bool:
    return all(size % count == 0 for size, count in zip(x.static_shape[-len(output) :], output, strict=True))


@condition("the last sizes of {x}, one for each of {output}, are static and at least 1")
def _has_elements(x: Value, output: list[int]) -> bool:
    return not {None, 0} & {*x.shape[-len(output) :]}


@formula("recover", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", name="avg_pool of adaptive", examples=[
    example("1x2x6x8xf32", [3, 4]), example("2x6x8xf32", [6, 2]),
    example("1x2x4x6x4xf32", [2, 3, 1], op="aten._adaptive_avg_pool3d"),
], where=lambda self, output_size, result: [
    is_floating(self).says(_INTEGERS),
    (result.rank == self.rank).says("output_size of the adaptive pool has too few or too many sizes"),
    _has_elements(self, output_size).says("the composite of an adaptive pool needs static sizes of at least 1"),
    _are_alike(self, output_size).says("the windows of the adaptive pool differ in size"),
])  # fmt: skip
def adaptive_average_pool(c: Coreai, self: Value, output_size: list[int]) -> Value:
    """Where the output divides the input, the windows are all alike; the lower stage takes the others."""
    count = len(output_size)
    kernel = [size // windows for size, windows in zip(self.static_shape[-count:], output_size, strict=True)]
    return AveragePool(tuple(output_size), kernel, kernel, [0] * count).apply(c, self)

"""Convolutions of patches, whose windows do not overlap, as 1x1 convolutions of the patches' elements."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.value import Value
from patcomp.patterns import call, example, formula
from patcomp.patterns.conditions import divides
from patterns_catalog.target.linear import is_weight


def integers(value: Value) -> tuple[int, ...] | None:
    """The integers of a constant; None for other values."""
    return constant_integers(value.ssa)


def _is_of_two_and_three(number: int) -> bool:
    for factor in (2, 3):
        while number % factor == 0:
            number //= factor
    return number == 1


def _are_of_two_and_three(numbers: Sequence[int]) -> bool:
    """Whether numbers have no prime factors but 2 and 3."""
    return all(map(_is_of_two_and_three, numbers))


@formula("target", "coreai.conv2d", name="convolution of patches", targets=("neural_engine",), examples=[
    example("2x3x10x15xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 300).reshape(4, 3, 5, 5), torch.linspace(0, 1, 4), 5))),
    example("1x2x14x6xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 168).reshape(4, 2, 7, 3), None, (7, 3)))),
], where=lambda input, weight, stride, dilation: [
    (call(integers, dilation) == (1, 1)).says("the window has gaps"),
    (input.is_static & weight.is_static).says("the input or the weight has dynamic sizes"),
    call(is_weight, weight).says("the window is not computed from weights alone"),
    (weight.shape[1] == input.shape[1]).says("the channels are in groups"),
    (call(integers, stride) == weight.shape[2:]).says("the windows overlap, or leave positions out"),
    (~call(_are_of_two_and_three, weight.shape[2:])).says(
        "the device supports this stride, whose factors are 2 and 3"
    ),
    (divides(weight.shape[2], input.shape[2]) & divides(weight.shape[3], input.shape[3])).says(
        "the patches do not cover the input"
    ),
], ignored={"groups": "there is one if the window has all channels"})  # fmt: skip
def convolution_of_patches(c: Coreai, input: Value, weight: Value) -> Value:
    "conv(x, w, stride = window) -> 1x1 conv of the elements of each patch, gathered rows first and then columns"
    outputs, _, tall, wide = weight.static_shape
    images, channels, height, width = input.static_shape
    rows, columns = height // tall, width // wide
    by_row = c.transpose(c.reshape(input, [images, channels, rows, tall, width]), [0, 1, 3, 2, 4])
    elements = channels * tall * wide
    parts = c.transpose(c.reshape(by_row, [images, channels * tall, rows, columns, wide]), [0, 1, 4, 2, 3])
    patches = c.reshape(parts, [images, elements, rows, columns])
    return c.conv2d(patches, c.reshape(weight, [outputs, elements, 1, 1]), [1, 1], [1, 1], 1)

"""Convolutions of patches, whose windows do not overlap, as 1x1 convolutions of the patches' elements."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.target.linear import is_weight


@op_rule("target", "coreai.conv2d", name="convolution of patches", targets=("neural_engine",), examples=[
    example("2x3x10x15xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 300).reshape(4, 3, 5, 5), torch.linspace(0, 1, 4), 5))),
    example("1x2x14x6xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 168).reshape(4, 2, 7, 3), None, (7, 3)))),
])  # fmt: skip
def convolution_of_patches(op: OpView, c: Coreai) -> Value:
    "conv(x, w, stride = window) -> 1x1 conv of the elements of each patch, gathered rows first and then columns"
    x, weight, stride = op.input, op.weight, constant_integers(op.stride.ssa)
    op.expect(constant_integers(op.dilation.ssa) == (1, 1), "the window has gaps")
    op.expect(x.is_static and weight.is_static, "the input or the weight has dynamic sizes")
    op.expect(is_weight(weight), "the window is not computed from weights alone")
    outputs, inputs, *window = weight.static_shape
    images, channels, height, width = x.static_shape
    op.expect(inputs == channels, "the channels are in groups")
    op.ignore("groups", because="there is one if the window has all channels")
    op.expect(stride == tuple(window), "the windows overlap, or leave positions out")
    op.expect(not all(map(_is_of_two_and_three, window)), "the device supports this stride, whose factors are 2 and 3")
    rows, columns = height // window[0], width // window[1]
    op.expect([rows * window[0], columns * window[1]] == [height, width], "the patches do not cover the input")
    by_row = c.transpose(c.reshape(x, [images, channels, rows, window[0], width]), [0, 1, 3, 2, 4])
    tall = c.reshape(by_row, [images, channels * window[0], rows, columns, window[1]])
    elements = channels * window[0] * window[1]
    patches = c.reshape(c.transpose(tall, [0, 1, 4, 2, 3]), [images, elements, rows, columns])
    return c.conv2d(patches, c.reshape(weight, [outputs, elements, 1, 1]), [1, 1], [1, 1], 1)


def _is_of_two_and_three(number: int) -> bool:
    for factor in (2, 3):
        while number % factor == 0:
            number //= factor
    return number == 1

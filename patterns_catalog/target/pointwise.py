"""Convolutions with one element in their window as products, which the runtime for Linux computes faster.

No target names the rule, because it was only measured there, and the reshapes around a product are further ops.
"""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import call, example, formula
from patterns_catalog.target.linear import is_weight
from patterns_catalog.target.patches import integers

_CHANNELS = 32
_POSITIONS = 16
"""A product was as slow as the convolution with 16 channels, and faster with 64 and more. Fewer than 49 positions were
not measured."""


@formula("target", "coreai.conv2d", name="pointwise convolution as product", examples=[
    example("1x32x4x5xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 96).reshape(3, 32, 1, 1), torch.linspace(0, 1, 3)))),
    example("2x33x5x4xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 132).reshape(4, 33, 1, 1)))),
    example("1x32x4x5xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 96).reshape(3, 32, 1, 1), None, 1, 0, 2))),
], where=lambda input, weight, stride: [
    (input.is_static & weight.is_static).says("the input or the weight has dynamic sizes"),
    (weight.shape[2:] == (1, 1)).says("the window has several elements"),
    (call(integers, stride) == (1, 1)).says("the stride of the convolution is not 1"),
    (weight.shape[1] == input.shape[1]).says("the channels are in groups"),
    (input.dtype == "f32").says("the rule is for float32 only, the type that was measured"),
    call(is_weight, weight).says("the window is not computed from weights alone"),
    ((input.shape[1] >= _CHANNELS) & (input.shape[2] * input.shape[3] >= _POSITIONS)).says(
        "the convolution is too small for a product to be faster"
    ),
], ignored={
    "dilation": "a window has one element", "groups": "there is one if the window has all channels",
})  # fmt: skip
def pointwise_convolution_as_product(c: Coreai, input: Value, weight: Value) -> Value:
    "conv(x, w) -> (O, I) @ (N, I, H W) for windows of one element; the order of sums changes"
    images, channels, height, width = input.static_shape
    matrix = c.reshape(weight, list(weight.static_shape[:2]))
    made = c.broadcasting_batch_matmul(matrix, c.reshape(input, [images, channels, height * width]))
    return c.reshape(made, [images, weight.static_shape[0], height, width])

"""Convolutions with one element in their window as products, which the runtime for Linux computes faster.

No target names the rule, because it was only measured there, and the reshapes around a product are further ops.
"""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.types import element_name
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.target.linear import is_weight

_CHANNELS = 32
_POSITIONS = 16
"""A product was as slow as the convolution with 16 channels, and faster with 64 and more. Fewer than 49 positions were
not measured."""


@op_rule("target", "coreai.conv2d", name="pointwise convolution as product", examples=[
    example("1x32x4x5xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 96).reshape(3, 32, 1, 1), torch.linspace(0, 1, 3)))),
    example("2x33x5x4xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 132).reshape(4, 33, 1, 1)))),
    example("1x32x4x5xf32", program=lambda torch, x: (
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 96).reshape(3, 32, 1, 1), None, 1, 0, 2))),
])  # fmt: skip
def pointwise_convolution_as_product(op: OpView, c: Coreai) -> Value:
    "conv(x, w) -> (O, I) @ (N, I, H W) for windows of one element; the order of sums changes"
    x, weight = op.input, op.weight
    op.ignore("dilation", because="a window has one element")
    op.expect(x.is_static and weight.is_static, "the input or the weight has dynamic sizes")
    outputs, inputs, *window = weight.static_shape
    images, channels, height, width = x.static_shape
    op.expect(window == [1, 1], "the window has several elements")
    op.expect(constant_integers(op.stride.ssa) == (1, 1), "the stride of the convolution is not 1")
    op.expect(inputs == channels, "the channels are in groups")
    op.ignore("groups", because="there is one if the window has all channels")
    op.expect(element_name(x.element_type) == "f32", "the rule is for float32 only, the type that was measured")
    op.expect(is_weight(weight), "the window is not computed from weights alone")
    op.expect(
        channels >= _CHANNELS and height * width >= _POSITIONS,
        "the convolution is too small for a product to be faster",
    )
    matrix = c.reshape(weight, [outputs, inputs])
    made = c.broadcasting_batch_matmul(matrix, c.reshape(x, [images, channels, height * width]))
    return c.reshape(made, [images, outputs, height, width])

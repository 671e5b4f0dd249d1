"""Batch normalisation folded into the convolution before it, for a device whose compiler does not fold it.

The folded weights are ops on the model's weights; the step `store prepared weights` computes and stores them.
"""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import element_name
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.composites.norms import batch_norm
from patterns_catalog.target.linear import is_weight


@op_rule("target", batch_norm, name="batch_norm into convolution", size=2, targets=("cpu", "neural_engine"), examples=[
    example("2x3x6x5xf32", program=lambda torch, x: torch.nn.functional.batch_norm(
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 108).reshape(4, 3, 3, 3), torch.linspace(0, 1, 4)),
        torch.linspace(-1, 1, 4), torch.linspace(1, 2, 4), torch.linspace(1, 3, 4), torch.linspace(2, 3, 4),
    )),
    example("1x4x6x5xf32", program=lambda torch, x: torch.nn.functional.batch_norm(
        torch.nn.functional.conv2d(x, torch.linspace(-1, 1, 72).reshape(4, 2, 3, 3), None, 2, 1, 1, 2),
        torch.linspace(-1, 1, 4), torch.linspace(1, 2, 4),
    )),
])  # fmt: skip
def batch_norm_into_convolution(op: OpView, c: Coreai) -> Value:
    "norm(conv(x, w) + b) -> conv(x, w f) + (b - mean) f + beta with f = gamma / sqrt(variance + eps)"
    made, bias = _convolution(op.input)
    if made is None:
        op.reject("the input is not the result of a convolution that nothing else reads")
    x, weight, *options = map(Value, made.operands)
    parameters = (weight, op.mean, op.variance, op.gamma, op.beta, *([] if bias is None else [bias]))
    op.expect(all(map(is_weight, parameters)), "a parameter is not computed from weights alone")
    op.expect(all(element_name(each.element_type) == "f32" for each in parameters), "a parameter is not float32")
    op.expect(weight.is_static, "the weight has dynamic sizes")
    channels, ones = weight.static_shape[0], [1] * (weight.rank - 2)
    factor = c.broadcasting_divide(op.gamma, c.sqrt(c.broadcasting_add(op.variance, op.eps)))
    mean = op.mean if bias is None else c.broadcasting_sub(op.mean, c.reshape(bias, [channels]))
    shift = c.broadcasting_sub(op.beta, c.broadcasting_mul(mean, factor))
    kernel = c.broadcasting_mul(weight, c.reshape(factor, [channels, 1, *ones]))
    folded = (c.conv2d if weight.rank == 4 else c.conv3d)(x, kernel, *options)
    return c.broadcasting_add(folded, c.reshape(shift, [1, channels, *ones]))


def _convolution(value: Value) -> tuple[Operation | None, Value | None]:
    """The convolution that computes a value, and the bias that is added; None if other ops read what it computes."""
    bias: Value | None = None
    maker = value.maker if value.is_read_once else None
    if maker is not None and maker.name == "coreai.decomposable.broadcasting_add":
        bias = Value(maker.operands[1])
        before = Value(maker.operands[0])
        maker = before.maker if before.is_read_once else None
        if bias.rank != value.rank or bias.shape != (1, value.shape[1], *([1] * (value.rank - 2))):
            return None, None
    named = maker is not None and maker.name in ("coreai.conv2d", "coreai.conv3d")
    return (maker, bias) if named else (None, None)

"""Activations in the forms in which the Neural Engine computes them."""

from __future__ import annotations

import math

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule


@op_rule("target", "coreai.gelu", name="gelu by sigmoid", examples=[
    example("2x64xf32", program=lambda torch, x: torch.nn.functional.gelu(x)),
    example("2x64xf32", program=lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh")),
])  # fmt: skip
def gelu_by_sigmoid(op: OpView, c: Coreai) -> Value:
    """gelu(x) -> x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)) (Hendrycks and Gimpel 2016, arXiv:1606.08415)

    The exact form, by erf, differs from it by up to 5e-4, 92 dB below the largest result; the tanh form is the same.
    """
    op.expect(op.approximate.data != "sigmoid", "it has the sigmoid form already")
    x = op.input
    cube = c.broadcasting_mul(c.broadcasting_mul(c.broadcasting_mul(x, x), x), 0.044715)
    return c.broadcasting_mul(x, c.sigmoid(c.broadcasting_mul(c.broadcasting_add(x, cube), 2 * math.sqrt(2 / math.pi))))


@op_rule("target", "coreai.tanh", name="tanh by sigmoid", examples=[
    example("2x64xf32", program=lambda torch, x: torch.tanh(x)),
])  # fmt: skip
def tanh_by_sigmoid(op: OpView, c: Coreai) -> Value:
    "tanh(x) -> 2 sigmoid(2x) - 1, which is the same up to rounding"
    return c.broadcasting_sub(c.broadcasting_mul(c.sigmoid(c.broadcasting_mul(op.x, 2.0)), 2.0), 1.0)

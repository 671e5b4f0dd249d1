"""Activations in the forms in which the Neural Engine computes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Attr, Capture, Rewrite, Rule, example, rule


def _declared(name: str, **options: Any) -> Callable[[Callable[..., Rewrite]], Rule]:
    return rule(stage="target", source=coreai_namespace, into=coreai_namespace, name=name, **options)


@_declared(name="gelu by sigmoid", targets=("neural_engine",), approximation=5e-4, examples=[
    example("2x64xf32", program=lambda torch, x: torch.nn.functional.gelu(x)),
    example("2x64xf32", program=lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh")),
])  # fmt: skip
def gelu_by_sigmoid(a: CoreaiSource, c: CoreaiTarget, x: Capture, approximate: Attr) -> Rewrite:
    """gelu(x) -> x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)) (Hendrycks and Gimpel 2016, arXiv:1606.08415)

    The exact form, by erf, differs from it by up to 5e-4, 92 dB below the largest result; the tanh form is the same.
    """
    cube = c.broadcasting_mul(c.broadcasting_mul(c.broadcasting_mul(x, x), x), 0.044715)
    curve = c.sigmoid(c.broadcasting_mul(c.broadcasting_add(x, cube), 2 * math.sqrt(2 / math.pi)))
    return Rewrite(
        a.gelu(x, approximate=approximate), to=c.broadcasting_mul(x, curve), where=[approximate != "sigmoid"]
    )


@_declared(
    name="tanh by sigmoid", example={"x": "2x64xf32"}, targets=("neural_engine",),
    unspecified={"limits of 16 bits": "results near zero lose their digits, and become 0 below half a unit of 1"},
)  # fmt: skip
def tanh_by_sigmoid(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "tanh(x) -> 2 sigmoid(2x) - 1, which is the same up to rounding"
    curve = c.sigmoid(c.broadcasting_mul(x, 2.0))
    return Rewrite(a.tanh(x), to=c.broadcasting_sub(c.broadcasting_mul(curve, 2.0), 1.0))


@_declared(name="silu by sigmoid", example={"x": "2x64xf32"})
def silu_by_sigmoid(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "silu(x) -> x * sigmoid(x), the same to the last bit"
    return Rewrite(a.silu(x), to=c.broadcasting_mul(x, c.sigmoid(x)))


@_declared(
    example={"x": "2x3xf32"}, name="softplus without overflow", targets=("neural_engine",),
    unspecified=dict.fromkeys(
        ("infinities and zeros", "large numbers", "limits of 16 bits"), "log(1 + exp(x)) was infinite"
    ),
)  # fmt: skip
def softplus_without_overflow(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    """log(1 + exp(x)) -> max(x, 0) + log(1 + exp(-|x|)), which no x makes infinite

    The pattern is `log1p` as it is lowered. In float16, exp(x) overflows from 11.1 on.
    """
    power = a.exp(x)
    shifted = power + 1.0
    back = a.broadcasting_maximum(shifted, 0.0) - 1.0
    unchanged = a.broadcasting_equal(shifted, 1.0)
    exact = a.broadcasting_or(a.broadcasting_equal(back, power), unchanged)
    quotient = a.broadcasting_where(exact, 1.0, power) / a.broadcasting_where(exact, 1.0, back)
    logarithm = a.broadcasting_where(unchanged, power, a.log(shifted) * quotient)
    positive = c.broadcasting_maximum(x, 0.0)
    remainder = c.log(c.broadcasting_add(c.exp(c.broadcasting_sub(0.0, c.abs_(x))), 1.0))
    return Rewrite(logarithm, to=c.broadcasting_add(positive, remainder))

"""Activations and softmax variants as composites."""

from __future__ import annotations

import math
from typing import Any

from patcomp.authoring import AtenSource, AtenTarget, Composites, Coreai, CoreaiTarget, aten
from patcomp.ir.composite import composite
from patcomp.ir.namespaces import aten_namespace, coreai_namespace
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Attr, Capture, Rewrite, any_of, check, composites, example, formula, rule, tag
from patcomp.patterns.match import Match


@composites.define
@composite("hard_sigmoid", inputs=("input",))
def hard_sigmoid(c: Coreai, x: Value) -> Value:
    "min(max(x + 3, 0), 6) / 6"
    return c.broadcasting_divide(
        c.broadcasting_minimum(c.broadcasting_maximum(c.broadcasting_add(x, 3.0), 0.0), 6.0), 6.0
    )


@composites.define
@composite("log_softmax", inputs=("input",), attributes=("axis",))
def log_softmax(c: Coreai, x: Value, *, axis: int, shift: str = "max") -> Value:
    """x - max - log(sum(exp(x - max)))

    With the shift "finite max" an infinite maximum counts as 0, as in PyTorch's logsumexp.
    """
    wide = c.cast(x, "f32" if x.dtype in ("f16", "bf16") else x.element_type)
    largest = c.reduce_max(wide, [axis])
    if shift == "finite max":
        infinite = c.broadcasting_equal(c.abs(largest), math.inf)
        largest = c.broadcasting_where(infinite, 0.0, largest)
    shifted = c.broadcasting_sub(wide, largest)
    return c.cast(c.broadcasting_sub(shifted, c.log(c.reduce_sum(c.exp(shifted), [axis]))), x.element_type)


@formula("recover", "aten.hardsigmoid", name="hard_sigmoid", examples=[example("2x9xf32[-5,5]")])
def hardsigmoid(c: Coreai, self: Value) -> Value:
    "min(max(x + 3, 0), 6) / 6"
    return hard_sigmoid(self)


@formula("recover", "aten.hardswish", name="hard_sigmoid of hardswish", examples=[example("2x9xf32[-5,5]")])
def hardswish(c: Coreai, self: Value, result: ValueType) -> Value:
    "x * hard_sigmoid(x)"
    return aten.mul.Tensor(result, self, hard_sigmoid(self))


_HALVES = "log_softmax converts half to float, which the composite does not"


@formula(
    "recover", "aten._log_softmax", name="log_softmax",
    examples=[example("2x5xf32", -1, False), example("2x5xf32", 0, False)],
    where=lambda self, half_to_float: [(half_to_float == False).says(_HALVES), self.rank > 0],  # noqa: E712
)  # fmt: skip
def aten_log_softmax(c: Coreai, self: Value, dim: int) -> Value:
    "x - max - log(sum(exp(x - max))) along one axis"
    return log_softmax(self, axis=dim % self.rank)


@formula(
    "recover", "aten._log_softmax", name="log_softmax of a number", examples=[example("f32", 0, False)],
    where=lambda self, half_to_float: [(half_to_float == False).says(_HALVES), self.rank == 0],  # noqa: E712
    ignored={"dim": "there is none"},
)  # fmt: skip
def log_softmax_of_number(c: Coreai, self: Value, result: ValueType) -> Value:
    "x - x: 0, or NaN if the number is not finite"
    return aten.sub.Tensor(result, self, self)


# ---- from the ops of models that write it out ------------------------------------------------------


def _half(x: Any) -> Any:
    return any_of(x * 0.5, x / 2.0)


def _half_product(x: Any, y: Any) -> Any:
    """0.5 * x * y, the factors in any order."""
    return any_of(_half(x) * y, x * _half(y), _half(x * y))


@rule(
    into=aten_namespace, name="gelu of erf", example={"x": "2x5xf32"},
    unspecified={"infinities and zeros": "eager's gelu of infinity is NaN, by accident"},
)  # fmt: skip
def gelu_of_erf(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "0.5 * x * (1 + erf(x / sqrt(2))) (Hendrycks and Gimpel 2016, arXiv:1606.08415; BERT and others with gelu_python)"
    scaled = any_of(x / math.sqrt(2), x * math.sqrt(0.5))
    return Rewrite(_half_product(x, 1.0 + a.erf(scaled)), to=c.gelu(x, approximate="none"))


_CUBIC = 0.044715
_ROOT = math.sqrt(2 / math.pi)


@rule(into=aten_namespace, name="gelu of tanh", example={"x": "2x5xf32"})
def gelu_of_tanh(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) (GPT-2 and others with gelu_new)

    or with sqrt(2 / pi) * x * (1 + 0.044715 * x * x) inside (BLOOM, gelu_fast).
    """
    square = any_of(x * x, a.pow(x, 2.0))
    scaled_square = any_of((x * _CUBIC) * x, square * _CUBIC)
    scaled_cube = any_of(any_of(a.pow(x, 3.0), square * x) * _CUBIC, scaled_square * x)
    inside = any_of((x + scaled_cube) * _ROOT, (x * _ROOT) * (1.0 + scaled_square))
    return Rewrite(_half_product(x, 1.0 + a.tanh(inside)), to=c.gelu(x, approximate="tanh"))


@rule(into=coreai_namespace, name="gelu of sigmoid", example={"x": "2x5xf32"})
def gelu_of_sigmoid(a: AtenSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x * sigmoid(1.702 * x) (CLIP and others with quick_gelu): a GELU that only Core AI has an op for"
    return Rewrite(x * a.sigmoid(x * 1.702), to=c.gelu(x, approximate="sigmoid"))


@rule(into=aten_namespace, name="silu of sigmoid", example={"x": "2x5xf32"})
def silu_of_sigmoid(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "x * sigmoid(x) (Swish; PyTorch's default decomposition of silu)"
    return Rewrite(x * a.sigmoid(x), to=c.silu(x))


def _clamped(a: AtenSource, x: Any, high: float) -> Any:
    """min(max(x, 0), high) in one op or two."""
    once = a.op("clamp", x, min=0.0, max=high)
    return any_of(once, a.op("clamp", a.op("clamp", x, min=0.0, max=None), min=None, max=high))


def _sixth(x: Any) -> Any:
    return any_of(x / 6.0, x * (1 / 6))


@rule(name="hard_sigmoid of clamp", example={"x": "2x5xf32[-5,5]"})
def hard_sigmoid_of_clamp(a: AtenSource, c: Composites, x: Capture) -> Rewrite:
    "relu6(x + 3) / 6 or clamp(x / 6 + 0.5, 0, 1) (MobileNetV3; PyTorch's default decomposition of hardsigmoid)"
    return Rewrite(any_of(_sixth(_clamped(a, x + 3.0, 6.0)), _clamped(a, _sixth(x) + 0.5, 1.0)), to=c.hard_sigmoid(x))


@rule(into=aten_namespace, name="hard_sigmoid of hardswish by clamp", example={"x": "2x5xf32[-5,5]"})
def hard_swish_of_clamp(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "x * relu6(x + 3) / 6 (PyTorch's default decomposition of hardswish)"
    return Rewrite(_sixth(x * _clamped(a, x + 3.0, 6.0)), to=c.hardswish(x))


# ---- log_softmax -----------------------------------------------------------------------------------


@rule(name="log_softmax written out", example={"x": "2x5xf32", "axes": [1], "again": [1]})
def recovered_log_softmax(a: AtenSource, c: Composites, x: Capture, axes: Attr, again: Attr) -> Rewrite:
    """x - logsumexp(x) or x - max - log(sum(exp(x - max))), in float32

    They agree up to the rounding of max + log in logsumexp. log(softmax(x)) stays: where softmax underflows it is -inf
    and this is not. So does log(sum(exp(x))) without the maximum, which overflows. (softplus has neither an op nor a
    composite: PyTorch's decomposition stays.)
    """
    largest = a.amax(x, dim=axes, keepdim=True)
    finite = a.where(a.eq(a.abs(largest), math.inf), 0.0, largest)  # of PyTorch's logsumexp
    shift = any_of(finite, largest, tag="shift", tags=["finite max", "max"])
    shifted = x - shift
    log = a.log(a.op("sum.dim_IntList", a.exp(shifted), dim=again, keepdim=True, dtype=None))

    def one_axis(match: Match) -> bool:
        rank = match["x"].rank
        first, second = ([axis % rank for axis in match[name]] for name in ("axes", "again"))
        return first == second and len(first) == 1

    return Rewrite(
        any_of(shifted - log, x - (log + shift)),
        to=c.log_softmax(x, axis=again[0], shift=tag("shift")),
        where=[x.dtype == "f32", x.rank > 0, check("both are over the same axis", one_axis)],
    )

"""Activations and softmax variants as composites."""

from __future__ import annotations

from typing import Any

from patcomp.ir import aten
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import OpView, composites, example, op_rule


@composites.define
@composite("hard_sigmoid", inputs=("input",))
def hard_sigmoid(c: Any, x: Value) -> Value:
    "min(max(x + 3, 0), 6) / 6"
    return c.broadcasting_divide(
        c.broadcasting_minimum(c.broadcasting_maximum(c.broadcasting_add(x, 3.0), 0.0), 6.0), 6.0
    )


@composites.define
@composite("log_softmax", inputs=("input",), attributes=("axis",))
def log_softmax(c: Any, x: Value, *, axis: int) -> Value:
    "x - max - log(sum(exp(x - max)))"
    wide = c.cast(x, "f32" if x.dtype in ("f16", "bf16") else x.element_type)
    shifted = c.broadcasting_sub(wide, c.reduce_max(wide, [axis]))
    return c.cast(c.broadcasting_sub(shifted, c.log(c.reduce_sum(c.exp(shifted), [axis]))), x.element_type)


@op_rule("recover", "aten.hardsigmoid", name="hard_sigmoid", examples=[example("2x9xf32[-5,5]")])
def hardsigmoid(op: OpView, c: Any) -> Value:
    return hard_sigmoid(op["self"])


@op_rule("recover", "aten.hardswish", name="hard_sigmoid of hardswish", examples=[example("2x9xf32[-5,5]")])
def hardswish(op: OpView, c: Any) -> Value:
    "x * hard_sigmoid(x)"
    x = op["self"]
    return aten.build("aten.mul.Tensor", op.result, self=x, other=hard_sigmoid(x))


@op_rule(
    "recover",
    "aten._log_softmax",
    name="log_softmax",
    examples=[example("2x5xf32", -1, False), example("2x5xf32", 0, False)],
)
def aten_log_softmax(op: OpView, c: Any) -> Value:
    x = op["self"]
    op.expect(x.rank > 0 and not op.half_to_float, "log_softmax of a 0-d tensor or with half_to_float")
    return log_softmax(x, axis=op.dim % x.rank)

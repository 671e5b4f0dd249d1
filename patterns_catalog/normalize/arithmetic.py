"""Arithmetic in one spelling: tensors on both sides, of the type in which PyTorch computes, alpha = 1."""

from __future__ import annotations

from typing import Any

from patcomp.ir import coreai
from patcomp.ir.types import element_name, is_float, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import OpRule, OpView, example, normalization
from patterns_catalog.promotion import result_element

_PAIR = example("2x3xf32", "3xf32")


def as_tensor(a: Any, operand: Any, element: Attribute) -> Value:
    """A tensor or number as a tensor of an element type; numbers and small constants become constants."""
    if not isinstance(operand, Value):
        if isinstance(operand, float) and not is_float(element):
            raise TypeError(f"the number {operand} in a computation in {element_name(element)}")
        return coreai.constant(operand, element)
    if operand.element_type == element:
        return operand
    return a.build("aten._to_copy", tensor(operand.shape, element), self=operand, dtype=element)


def _is_normal(op: OpView, element: Attribute, *names: str) -> bool:
    return all(isinstance(op[name], Value) and op[name].element_type == element for name in names)


def _arithmetic(name: str, *, scalar: str | None = "Scalar", tensor_overload: str = "Tensor") -> OpRule:
    """`x + 1`, `x + y` of mixed types, `add(x, y, alpha=2)` as `add.Tensor` of equal types."""
    target = f"aten.{name}.{tensor_overload}" if tensor_overload else f"aten.{name}"
    sources = [target, *([f"aten.{name}.{scalar}"] if scalar else [])]
    examples = [_PAIR, example("2x3xf32", "3xsi64[1,4]")]
    if scalar:
        examples.append(example("2x3xf32", 2.5, op=sources[1]))

    @normalization(*sources, name=f"normalize {name}", examples=examples)
    def rule(op: OpView, a: Any) -> Value | None:
        element = op.result.element_type
        alpha = op.alpha if "alpha" in op.arguments else 1
        if op.op_name == target and alpha == 1 and _is_normal(op, element, "self", "other"):
            return None
        left, right = as_tensor(a, op["self"], element), as_tensor(a, op.other, element)
        if alpha != 1:
            right = a.build("aten.mul.Tensor", right.type, self=right, other=coreai.constant(alpha, element))
        return a.build(target, op.result, self=left, other=right)

    return rule


add = _arithmetic("add")
sub = _arithmetic("sub")
mul = _arithmetic("mul")
div = _arithmetic("div")
maximum = _arithmetic("maximum", scalar=None, tensor_overload="")
minimum = _arithmetic("minimum", scalar=None, tensor_overload="")


def _bitwise(name: str) -> OpRule:
    target = f"aten.{name}.Tensor"

    @normalization(
        target, f"aten.{name}.Scalar", name=f"normalize {name}",
        examples=[example("4xsi32[0,9]", "4xsi64[0,9]"), example("4xsi32[0,9]", 5, op=f"aten.{name}.Scalar")],
    )  # fmt: skip
    def rule(op: OpView, a: Any) -> Value | None:
        element = op.result.element_type
        if op.op_name == target and _is_normal(op, element, "self", "other"):
            return None
        operands = {key: as_tensor(a, op[key], element) for key in ("self", "other")}
        return a.build(target, op.result, **operands)

    return rule


bitwise_and = _bitwise("bitwise_and")
bitwise_or = _bitwise("bitwise_or")
bitwise_xor = _bitwise("bitwise_xor")


@normalization(
    "aten.rsub.Scalar",
    "aten.rsub.Tensor",
    examples=[example("2x3xf32", 2.0, alpha=3), example("3xf32", "3xf32", op="aten.rsub.Tensor")],
)
def rsub(op: OpView, a: Any) -> Value:
    "other - alpha * self"
    element = op.result.element_type
    left, right = as_tensor(a, op["self"], element), as_tensor(a, op.other, element)
    if op.alpha != 1:
        left = a.build("aten.mul.Tensor", left.type, self=left, other=coreai.constant(op.alpha, element))
    return a.build("aten.sub.Tensor", op.result, self=right, other=left)


@normalization("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", examples=[
    example("2x3xf32[0.1,2]", 2.5, op="aten.pow.Tensor_Scalar"), example(2.0, "2x3xf32", op="aten.pow.Scalar"),
    example("4xsi32[0,5]", 2, op="aten.pow.Tensor_Scalar"),
])  # fmt: skip
def power(op: OpView, a: Any) -> Value | None:
    element = op.result.element_type
    if op.op_name == "aten.pow.Tensor_Tensor" and _is_normal(op, element, "self", "exponent"):
        return None
    operands = {key: as_tensor(a, op[key], element) for key in ("self", "exponent")}
    return a.build("aten.pow.Tensor_Tensor", op.result, **operands)


def _comparison(name: str) -> OpRule:
    """Operands in the type of `torch.result_type`, from which the bool result says nothing."""
    target = f"aten.{name}.Tensor"

    @normalization(target, f"aten.{name}.Scalar", name=f"normalize {name}", examples=[
        example("2x3xf32", "3xsi64[-1,1]"), example("5xsi32[-2,2]", 0.5, op=f"aten.{name}.Scalar"),
    ])  # fmt: skip
    def rule(op: OpView, a: Any) -> Value | None:
        element = result_element([op["self"], op.other])
        if op.op_name == target and _is_normal(op, element, "self", "other"):
            return None
        operands = {key: as_tensor(a, op[key], element) for key in ("self", "other")}
        return a.build(target, op.result, **operands)

    return rule


eq = _comparison("eq")
ne = _comparison("ne")
lt = _comparison("lt")
le = _comparison("le")
gt = _comparison("gt")
ge = _comparison("ge")


@normalization("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", examples=[
    example("3xi1", "3xf32", 0.1, op="aten.where.ScalarOther"), example("3xi1", "3xf32", "3xsi64"),
])  # fmt: skip
def where(op: OpView, a: Any) -> Value | None:
    element = op.result.element_type
    if op.op_name == "aten.where.self" and _is_normal(op, element, "self", "other"):
        return None
    operands = {key: as_tensor(a, op[key], element) for key in ("self", "other")}
    return a.build("aten.where.self", op.result, condition=op.condition, **operands)

"""Arithmetic in one spelling: tensors on both sides, of the type in which PyTorch computes, alpha = 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import Aten, coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, element_type, is_float, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import OpView, Rule, example, normalization
from patterns_catalog.numbers import is_normal_in, number_in
from patterns_catalog.promotion import result_element

_MIXED = example("2x3xf32", "3xsi64[1,4]")


def as_tensor(aten: Aten, operand: Any, element: Attribute) -> Value:
    """A tensor or number as a tensor of an element type; numbers become constants."""
    if not isinstance(operand, Value):
        return coreai.constant(number_in(operand, element), element)
    if operand.element_type == element:
        return operand
    return aten._to_copy(tensor(operand.shape, element), operand, dtype=element)


def _is_normal(op: OpView, element: Attribute, *names: str) -> bool:
    return all(isinstance(op[name], Value) and op[name].element_type == element for name in names)


def _computed_in(element: Attribute, operands: Sequence[Any]) -> Attribute:
    """The type in which PyTorch computes a product or quotient whose result is of an element type.

    Numbers and wider 0-d tensors beside half precision are not rounded to it first: `x * 1e5` of f16 is
    computed in float32. Where the rounding would be a normal one, half precision is close enough.
    (Sums round first.)
    """
    if element_name(element) not in ("f16", "bf16"):
        return element
    for operand in operands:
        if not isinstance(operand, Value):
            exact = is_normal_in(operand, element)
        elif operand.rank or not is_float(operand.element_type):
            exact = True
        else:
            constant = operand.constant
            narrow = BIT_WIDTHS[operand.dtype] <= 16
            exact = narrow or (constant is not None and is_normal_in(float(constant), element))
        if not exact:
            return element_type("f32")
    return element


def _arithmetic(name: str, *, scalar: str | None = "Scalar", tensor_overload: str = "Tensor") -> Rule:
    """`x + 1`, `x + y` of mixed types, `add(x, y, alpha=2)` as `add.Tensor` of equal types."""
    target = f"aten.{name}.{tensor_overload}" if tensor_overload else f"aten.{name}"
    sources = [target, *([f"aten.{name}.{scalar}"] if scalar else [])]
    examples = [_MIXED, example("2x3xf16", "f32")] if scalar else [_MIXED]
    if scalar:
        examples.append(example("2x3xf32", 2.5, op=sources[1]))
    if name in ("add", "sub"):
        examples.append(example("2x3xf32", "3xf32", alpha=2))

    @normalization(*sources, name=f"normalize {name}", examples=examples)
    def rule(op: OpView, aten: Aten) -> Value | None:
        "scalars as constants, both operands cast to one type, alpha as a product"
        element = op.result.element_type
        alpha = op.alpha if "alpha" in op.arguments else 1
        if op.op_name == target and alpha == 1 and _is_normal(op, element, "self", "other"):
            return None
        operands = [op["self"], op.other]
        computed = _computed_in(element, operands) if name in ("mul", "div") else element
        left, right = (as_tensor(aten, operand, computed) for operand in operands)
        if alpha != 1:
            right = _scaled(aten, right, alpha)
        made = aten.build(target, tensor(op.result.shape, computed), self=left, other=right)
        return as_tensor(aten, made, element)

    return rule


def _scaled(aten: Aten, x: Value, factor: Any) -> Value:
    element = x.element_type
    return aten.mul.Tensor(x.type, x, coreai.constant(number_in(factor, element), element))


add = _arithmetic("add")
sub = _arithmetic("sub")
mul = _arithmetic("mul")
div = _arithmetic("div")
maximum = _arithmetic("maximum", scalar=None, tensor_overload="")
minimum = _arithmetic("minimum", scalar=None, tensor_overload="")


def _bitwise(name: str) -> Rule:
    target = f"aten.{name}.Tensor"

    @normalization(
        target, f"aten.{name}.Scalar", name=f"normalize {name}",
        examples=[example("4xsi32[0,9]", "4xsi64[0,9]"), example("4xsi32[0,9]", 5, op=f"aten.{name}.Scalar")],
    )  # fmt: skip
    def rule(op: OpView, aten: Aten) -> Value | None:
        "scalars as constants, both operands cast to the type of the result"
        element = op.result.element_type
        if op.op_name == target and _is_normal(op, element, "self", "other"):
            return None
        operands = {key: as_tensor(aten, op[key], element) for key in ("self", "other")}
        return aten.build(target, op.result, **operands)

    return rule


bitwise_and = _bitwise("bitwise_and")
bitwise_or = _bitwise("bitwise_or")
bitwise_xor = _bitwise("bitwise_xor")


@normalization(
    "aten.rsub.Scalar",
    "aten.rsub.Tensor",
    examples=[example("2x3xf32", 2.0, alpha=3), example("3xf32", "3xf32", op="aten.rsub.Tensor")],
)
def rsub(op: OpView, aten: Aten) -> Value:
    "other - alpha * self"
    element = op.result.element_type
    left, right = as_tensor(aten, op["self"], element), as_tensor(aten, op.other, element)
    if op.alpha != 1:
        left = _scaled(aten, left, op.alpha)
    return aten.sub.Tensor(op.result, right, left)


@normalization("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", examples=[
    example("2x3xf32[0.1,2]", 2.5, op="aten.pow.Tensor_Scalar"), example(2.0, "2x3xf32", op="aten.pow.Scalar"),
    example("4xsi32[0,5]", 2, op="aten.pow.Tensor_Scalar"),
])  # fmt: skip
def power(op: OpView, aten: Aten) -> Value | None:
    "base and exponent as tensors of the result's type"
    element = op.result.element_type
    if op.op_name == "aten.pow.Tensor_Tensor" and _is_normal(op, element, "self", "exponent"):
        return None
    operands = {key: as_tensor(aten, op[key], element) for key in ("self", "exponent")}
    return aten.pow.Tensor_Tensor(op.result, **operands)


def _comparison(name: str) -> Rule:
    """Operands in the type of `torch.result_type`, from which the bool result says nothing."""
    target = f"aten.{name}.Tensor"

    @normalization(target, f"aten.{name}.Scalar", name=f"normalize {name}", examples=[
        example("2x3xf32", "3xsi64[-1,1]"), example("5xsi32[-2,2]", 0.5, op=f"aten.{name}.Scalar"),
    ])  # fmt: skip
    def rule(op: OpView, aten: Aten) -> Value | None:
        "both operands as tensors of the type that PyTorch compares in"
        element = result_element([op["self"], op.other])
        if op.op_name == target and _is_normal(op, element, "self", "other"):
            return None
        operands = {key: as_tensor(aten, op[key], element) for key in ("self", "other")}
        return aten.build(target, op.result, **operands)

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
def where(op: OpView, aten: Aten) -> Value | None:
    "both branches as tensors of the result's type"
    element = op.result.element_type
    if op.op_name == "aten.where.self" and _is_normal(op, element, "self", "other"):
        return None
    operands = {key: as_tensor(aten, op[key], element) for key in ("self", "other")}
    return aten.where.self(op.result, op.condition, **operands)


@normalization("aten.hardtanh", examples=[example("2x3xf32", -0.5, 0.5), example("2x3xf32[-9,9]", 0.0, 6.0)])
def hardtanh(op: OpView, aten: Aten) -> Value:
    "a clamp (relu6 is one between 0 and 6); PyTorch cuts the bounds of integers to integers"
    low, high = (bound if is_float(op.result.element_type) else int(bound) for bound in (op.min_val, op.max_val))
    return aten.clamp(op.result, op["self"], min=low, max=high)

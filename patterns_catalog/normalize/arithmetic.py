"""Arithmetic in one spelling: tensors on both sides, of the type in which PyTorch computes, alpha = 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from patcomp.authoring import Aten, coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, element_type, is_float, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Example, OpView, Rule, example, normalization
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


def operands_in(
    aten: Aten, op: OpView, target: str, element: Attribute, *names: str
) -> dict[str, Value] | None:  # fmt: skip
    """The operands of an op as tensors of an element type; None if it is the target op and they are that already."""
    if op.op_name == target and all(isinstance(op[name], Value) and op[name].element_type == element for name in names):
        return None
    return {name: as_tensor(aten, op[name], element) for name in names}


def binary(
    target: str, *others: str, examples: Sequence[Example], element: Callable[[OpView], Attribute] | None = None
) -> Rule:
    """The rule that spells overloads of a binary op as the one that takes two tensors of one type.

    Args:
        target: the overload that takes two tensors.
        others: overloads that take a number.
        examples: calls of the overloads.
        element: the type in which PyTorch computes; by default that of the result.
    """

    @normalization(target, *others, name=f"normalize {target.split('.')[1]}", examples=examples)
    def rule(op: OpView, aten: Aten) -> Value | None:
        "numbers as constants, both operands cast to the type in which PyTorch computes"
        computed = op.result.element_type if element is None else element(op)
        operands = operands_in(aten, op, target, computed, "self", "other")
        return None if operands is None else aten.build(target, op.result, **operands)

    return rule


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


def _arithmetic(name: str) -> Rule:
    target, scalar = f"aten.{name}.Tensor", f"aten.{name}.Scalar"
    examples = [_MIXED, example("2x3xf16", "f32"), example("2x3xf32", 2.5, op=scalar)]
    if name in ("add", "sub"):
        examples.append(example("2x3xf32", "3xf32", alpha=2))

    @normalization(target, scalar, name=f"normalize {name}", examples=examples)
    def rule(op: OpView, aten: Aten) -> Value | None:
        "numbers as constants, both operands cast to one type, alpha as a product"
        element = op.result.element_type
        alpha = op.alpha if "alpha" in op.arguments else 1
        computed = _computed_in(element, [op["self"], op.other]) if name in ("mul", "div") else element
        operands = operands_in(aten, op, target if alpha == 1 else "", computed, "self", "other")
        if operands is None:
            return None
        if alpha != 1:
            operands["other"] = _scaled(aten, operands["other"], alpha)
        return as_tensor(aten, aten.build(target, tensor(op.result.shape, computed), **operands), element)

    return rule


def _scaled(aten: Aten, x: Value, factor: Any) -> Value:
    element = x.element_type
    return aten.mul.Tensor(x.type, x, coreai.constant(number_in(factor, element), element))


arithmetic = [_arithmetic(name) for name in ("add", "sub", "mul", "div")]
maximum = binary("aten.maximum", examples=[_MIXED])
minimum = binary("aten.minimum", examples=[_MIXED])


bitwise = [
    binary(f"aten.{name}.Tensor", f"aten.{name}.Scalar", examples=[
        example("4xsi32[0,9]", "4xsi64[0,9]"), example("4xsi32[0,9]", 5, op=f"aten.{name}.Scalar"),
    ])
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
]  # fmt: skip
# operands in the type of `torch.result_type`, which the bool result does not show
comparisons = [
    binary(
        f"aten.{name}.Tensor", f"aten.{name}.Scalar", element=lambda op: result_element([op["self"], op.other]),
        examples=[example("2x3xf32", "3xsi64[-1,1]"), example("5xsi32[-2,2]", 0.5, op=f"aten.{name}.Scalar")],
    )
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
]  # fmt: skip


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
    operands = operands_in(aten, op, "aten.pow.Tensor_Tensor", op.result.element_type, "self", "exponent")
    return None if operands is None else aten.pow.Tensor_Tensor(op.result, **operands)


@normalization("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", examples=[
    example("3xi1", "3xf32", 0.1, op="aten.where.ScalarOther"), example("3xi1", "3xf32", "3xsi64"),
])  # fmt: skip
def where(op: OpView, aten: Aten) -> Value | None:
    "both branches as tensors of the result's type"
    operands = operands_in(aten, op, "aten.where.self", op.result.element_type, "self", "other")
    return None if operands is None else aten.where.self(op.result, op.condition, **operands)


@normalization("aten.hardtanh", examples=[example("2x3xf32", -0.5, 0.5), example("2x3xf32[-9,9]", 0.0, 6.0)])
def hardtanh(op: OpView, aten: Aten) -> Value:
    "a clamp (relu6 is one between 0 and 6); PyTorch cuts the bounds of integers to integers"
    low, high = (bound if is_float(op.result.element_type) else int(bound) for bound in (op.min_val, op.max_val))
    return aten.clamp(op.result, op["self"], min=low, max=high)

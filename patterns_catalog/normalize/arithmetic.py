"""Arithmetic in one spelling: tensors on both sides, of the type in which PyTorch computes, alpha = 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from patcomp.authoring import Aten, coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, element_type, is_float, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Example, Rule, call, condition, example, formula
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


@condition("{operands} are tensors of {element}")
def are_tensors_of(operands: Sequence[Any], element: Attribute) -> bool:
    return all(isinstance(operand, Value) and operand.element_type == element for operand in operands)


def _of_result(result: ValueType, *operands: Any) -> Attribute:
    return result.element_type


def binary(
    target: str, *others: str, examples: Sequence[Example], element: Callable[..., Attribute] = _of_result
) -> Rule:
    """The rule that spells overloads of a binary op as the one that takes two tensors of one type.

    Args:
        target: the overload that takes two tensors.
        others: overloads that take a number.
        examples: calls of the overloads.
        element: the type in which PyTorch computes, of the result's type and both operands.
    """

    @formula(
        "normalize", target, *others, name=f"normalize {target.split('.')[1]}", examples=examples,
        where=lambda op_name, self, other, result: [
            ~((op_name == target) & are_tensors_of([self, other], call(element, result, self, other)))
        ],
    )  # fmt: skip
    def rule(aten: Aten, self: Any, other: Any, result: ValueType) -> Value:
        "numbers as constants, both operands cast to the type in which PyTorch computes"
        left, right = (as_tensor(aten, operand, element(result, self, other)) for operand in (self, other))
        return aten.build(target, result, self=left, other=right)  # type: ignore[no-any-return]

    return rule


def _computed_in(result: ValueType, *operands: Any) -> Attribute:
    """The type in which PyTorch computes a product or quotient.

    Numbers and wider 0-d tensors beside half precision are not rounded to it first: `x * 1e5` of f16 is
    computed in float32. Where the rounding would be a normal one, half precision is close enough.
    (Sums round first.)
    """
    element = result.element_type
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


def _product(name: str) -> Rule:
    target, scalar = f"aten.{name}.Tensor", f"aten.{name}.Scalar"

    @formula(
        "normalize", target, scalar, name=f"normalize {name}",
        examples=[_MIXED, example("2x3xf16", "f32"), example("2x3xf32", 2.5, op=scalar)],
        where=lambda op_name, self, other, result: [
            ~((op_name == target) & are_tensors_of([self, other], call(_computed_in, result, self, other)))
        ],
    )  # fmt: skip
    def rule(aten: Aten, self: Any, other: Any, result: ValueType) -> Value:
        "numbers as constants, both operands cast to the type in which PyTorch computes, the result cast back"
        computed = _computed_in(result, self, other)
        left, right = as_tensor(aten, self, computed), as_tensor(aten, other, computed)
        made = aten.build(target, tensor(result.shape, computed), self=left, other=right)
        return as_tensor(aten, made, result.element_type)

    return rule


def _sum(name: str) -> Rule:
    target, scalar = f"aten.{name}.Tensor", f"aten.{name}.Scalar"

    @formula(
        "normalize", target, scalar, name=f"normalize {name}", examples=[
            _MIXED, example("2x3xf16", "f32"), example("2x3xf32", 2.5, op=scalar),
            example("2x3xf32", "3xf32", alpha=2),
        ],
        where=lambda op_name, self, other, alpha, result: [
            ~((op_name == target) & are_tensors_of([self, other], result.element_type) & (alpha == 1))
        ],
    )  # fmt: skip
    def rule(aten: Aten, self: Any, other: Any, alpha: Any, result: ValueType) -> Value:
        "numbers as constants, both operands cast to the type of the result, alpha as a product"
        left, right = (as_tensor(aten, operand, result.element_type) for operand in (self, other))
        return aten.build(target, result, self=left, other=_scaled(aten, right, alpha))  # type: ignore[no-any-return]

    return rule


def _scaled(aten: Aten, x: Value, factor: Any) -> Value:
    """x * factor; `x` itself where the factor is 1."""
    element = x.element_type
    return x if factor == 1 else aten.mul.Tensor(x.type, x, coreai.constant(number_in(factor, element), element))


arithmetic = [*map(_sum, ("add", "sub")), *map(_product, ("mul", "div"))]
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
        f"aten.{name}.Tensor", f"aten.{name}.Scalar", element=lambda result, *operands: result_element(operands),
        examples=[example("2x3xf32", "3xsi64[-1,1]"), example("5xsi32[-2,2]", 0.5, op=f"aten.{name}.Scalar")],
    )
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
]  # fmt: skip


@formula("normalize", "aten.rsub.Scalar", "aten.rsub.Tensor", examples=[
    example("2x3xf32", 2.0, alpha=3), example("3xf32", "3xf32", op="aten.rsub.Tensor"),
])  # fmt: skip
def rsub(aten: Aten, self: Any, other: Any, alpha: Any, result: ValueType) -> Value:
    "other - alpha * self"
    left, right = (as_tensor(aten, operand, result.element_type) for operand in (self, other))
    return aten.sub.Tensor(result, right, _scaled(aten, left, alpha))


@formula(
    "normalize", "aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", examples=[
        example("2x3xf32[0.1,2]", 2.5, op="aten.pow.Tensor_Scalar"), example(2.0, "2x3xf32", op="aten.pow.Scalar"),
        example("4xsi32[0,5]", 2, op="aten.pow.Tensor_Scalar"),
    ],
    where=lambda op_name, self, exponent, result: [
        ~((op_name == "aten.pow.Tensor_Tensor") & are_tensors_of([self, exponent], result.element_type))
    ],
)  # fmt: skip
def power(aten: Aten, self: Any, exponent: Any, result: ValueType) -> Value:
    "base and exponent as tensors of the result's type"
    base, power = (as_tensor(aten, operand, result.element_type) for operand in (self, exponent))
    return aten.pow.Tensor_Tensor(result, base, power)


@formula(
    "normalize", "aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", examples=[
        example("3xi1", "3xf32", 0.1, op="aten.where.ScalarOther"), example("3xi1", "3xf32", "3xsi64"),
    ],
    where=lambda op_name, self, other, result: [
        ~((op_name == "aten.where.self") & are_tensors_of([self, other], result.element_type))
    ],
)  # fmt: skip
def where(aten: Aten, condition: Value, self: Any, other: Any, result: ValueType) -> Value:
    "both branches as tensors of the result's type"
    chosen, otherwise = (as_tensor(aten, operand, result.element_type) for operand in (self, other))
    return aten.where.self(result, condition, chosen, otherwise)


def _bound(number: Any, element: Attribute) -> Any:
    """A bound of a clamp; PyTorch cuts the bounds of integers to integers."""
    return number if is_float(element) else int(number)


@formula("normalize", "aten.hardtanh", examples=[
    example("2x3xf32", -0.5, 0.5), example("2x3xf32[-9,9]", 0.0, 6.0),
])  # fmt: skip
def hardtanh(aten: Aten, self: Value, min_val: Any, max_val: Any, result: ValueType) -> Value:
    "a clamp (relu6 is one between 0 and 6)"
    low, high = (_bound(number, result.element_type) for number in (min_val, max_val))
    return aten.clamp(result, self, min=low, max=high)

"""Rounded division and remainders in one spelling: tensors of one element type on both sides."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten
from patcomp.ir.types import is_float, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import OpView, Rule, example, normalization
from patterns_catalog.normalize.arithmetic import as_tensor


def _is_of(operand: Any, element: Attribute) -> bool:
    return isinstance(operand, Value) and operand.element_type == element


def _remainder(name: str, *scalars: str) -> Rule:
    target, others = f"aten.{name}.Tensor", [f"aten.{name}.{overload}" for overload in scalars]
    examples = [example("2x9xf32", "9xsi64[1,4]"), example("9xsi32", 4, op=others[0])]
    examples += [example(9, "9xsi32[1,4]", op=op) for op in others[1:]]

    @normalization(target, *others, name=f"normalize {name}", examples=examples)
    def rule(op: OpView, aten: Aten) -> Value | None:
        "both sides as tensors of the type of the result"
        element = op.result.element_type
        operands = (op["self"], op.other)
        if op.op_name == target and all(_is_of(operand, element) for operand in operands):
            return None
        left, right = (as_tensor(aten, operand, element) for operand in operands)
        return aten.build(target, op.result, self=left, other=right)

    return rule


fmod = _remainder("fmod", "Scalar")
remainder = _remainder("remainder", "Scalar", "Scalar_Tensor")


@normalization("aten.div.Tensor_mode", "aten.div.Scalar_mode", name="normalize rounded division", examples=[
    example("2x9xf32", "9xsi64[1,4]", rounding_mode="trunc"),
    example("9xsi32", 4, rounding_mode="floor", op="aten.div.Scalar_mode"),
    example("9xsi32", 4, rounding_mode=None, op="aten.div.Scalar_mode"),
])  # fmt: skip
def rounded_division(op: OpView, aten: Aten) -> Value | None:
    "both sides as tensors of the type of the result; without a mode, a plain division"
    element = op.result.element_type
    operands = (op["self"], op.other)
    if op.rounding_mode is None:
        op.expect(is_float(element), "a division without rounding mode must have a float result")
        return aten.div.Tensor(tensor(op.result.shape, element), operands[0], operands[1])
    if op.op_name == "aten.div.Tensor_mode" and all(_is_of(operand, element) for operand in operands):
        return None
    left, right = (as_tensor(aten, operand, element) for operand in operands)
    return aten.div.Tensor_mode(op.result, left, right, rounding_mode=op.rounding_mode)

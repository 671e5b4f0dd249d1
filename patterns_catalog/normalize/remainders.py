"""Rounded division and remainders in one spelling: tensors of one element type on both sides."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import example, formula
from patcomp.patterns.conditions import is_floating
from patterns_catalog.normalize.arithmetic import are_tensors_of, as_tensor, binary

fmod = binary("aten.fmod.Tensor", "aten.fmod.Scalar", examples=[
    example("2x9xf32", "9xsi64[1,4]"), example("9xsi32", 4, op="aten.fmod.Scalar"),
])  # fmt: skip
remainder = binary("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", examples=[
    example("2x9xf32", "9xsi64[1,4]"), example("9xsi32", 4, op="aten.remainder.Scalar"),
    example(9, "9xsi32[1,4]", op="aten.remainder.Scalar_Tensor"),
])  # fmt: skip


@formula(
    "normalize", "aten.div.Tensor_mode", "aten.div.Scalar_mode", name="normalize rounded division", examples=[
        example("2x9xf32", "9xsi64[1,4]", rounding_mode="trunc"),
        example("9xsi32", 4, rounding_mode="floor", op="aten.div.Scalar_mode"),
    ],
    where=lambda op_name, self, other, rounding_mode, result: [
        rounding_mode != None,  # noqa: E711
        ~((op_name == "aten.div.Tensor_mode") & are_tensors_of([self, other], result.element_type)),
    ],
)  # fmt: skip
def rounded_division(aten: Aten, self: Any, other: Any, rounding_mode: str, result: ValueType) -> Value:
    "both sides as tensors of the type of the result"
    left, right = (as_tensor(aten, operand, result.element_type) for operand in (self, other))
    return aten.div.Tensor_mode(result, left, right, rounding_mode=rounding_mode)


@formula(
    "normalize", "aten.div.Tensor_mode", "aten.div.Scalar_mode", name="normalize division without a mode",
    examples=[example("9xsi32", 4, rounding_mode=None, op="aten.div.Scalar_mode")],
    where=lambda rounding_mode, result: [
        rounding_mode == None,  # noqa: E711
        is_floating(result).says("a division without rounding mode must have a float result"),
    ],
)  # fmt: skip
def plain_division(aten: Aten, self: Any, other: Any, result: ValueType) -> Value:
    "without a mode, a plain division"
    return aten.div.Tensor(result, self, other)

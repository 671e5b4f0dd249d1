"""Rounded division and remainders in one spelling: tensors of one element type on both sides."""

from __future__ import annotations

from patcomp.authoring import Aten
from patcomp.ir.types import is_float, tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, normalization
from patterns_catalog.normalize.arithmetic import binary, operands_in

fmod = binary("aten.fmod.Tensor", "aten.fmod.Scalar", examples=[
    example("2x9xf32", "9xsi64[1,4]"), example("9xsi32", 4, op="aten.fmod.Scalar"),
])  # fmt: skip
remainder = binary("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", examples=[
    example("2x9xf32", "9xsi64[1,4]"), example("9xsi32", 4, op="aten.remainder.Scalar"),
    example(9, "9xsi32[1,4]", op="aten.remainder.Scalar_Tensor"),
])  # fmt: skip


@normalization("aten.div.Tensor_mode", "aten.div.Scalar_mode", name="normalize rounded division", examples=[
    example("2x9xf32", "9xsi64[1,4]", rounding_mode="trunc"),
    example("9xsi32", 4, rounding_mode="floor", op="aten.div.Scalar_mode"),
    example("9xsi32", 4, rounding_mode=None, op="aten.div.Scalar_mode"),
])  # fmt: skip
def rounded_division(op: OpView, aten: Aten) -> Value | None:
    "both sides as tensors of the type of the result; without a mode, a plain division"
    element = op.result.element_type
    if op.rounding_mode is None:
        op.expect(is_float(element), "a division without rounding mode must have a float result")
        return aten.div.Tensor(tensor(op.result.shape, element), op["self"], op.other)
    operands = operands_in(aten, op, "aten.div.Tensor_mode", element, "self", "other")
    return None if operands is None else aten.div.Tensor_mode(op.result, **operands, rounding_mode=op.rounding_mode)

"""Remainders in one spelling: tensors of one element type on both sides."""

from __future__ import annotations

from typing import Any

from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, normalization
from patterns_catalog.normalize.arithmetic import as_tensor


@normalization("aten.fmod.Tensor", "aten.fmod.Scalar", examples=[
    example("2x9xf32", "9xsi64[1,4]"), example("9xsi32", 4, op="aten.fmod.Scalar"),
])  # fmt: skip
def fmod(op: OpView, a: Any) -> Value | None:
    "both operands as tensors of the result's type"
    element = op.result.element_type
    operands = (op["self"], op.other)
    if all(isinstance(operand, Value) and operand.element_type == element for operand in operands):
        return None
    left, right = (as_tensor(a, operand, element) for operand in operands)
    return a.build("aten.fmod.Tensor", op.result, self=left, other=right)

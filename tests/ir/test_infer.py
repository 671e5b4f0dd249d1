"""Inferred result types agree with those of the cases, which the real toolchain took."""

from __future__ import annotations

import pytest

from patcomp.ir import OPS, CoreaiOp, InferenceError, IRModule
from patcomp.ir.infer import (
    INFERENCES,
    UndeterminedError,
    broadcast_shapes,
    compatible,
    infer_types,
    merge,
    normalize_axis,
)
from patcomp.ir.types import HandleType, ImageType, TokenType, shape_of
from tests.helpers.dialect_cases import READABLE, DialectCase

AUTHOR_STATES = {"argmax", "non_zero", "cast"}
"""Ops whose result element type the author chooses."""


@pytest.mark.parametrize("case", [case for case in READABLE if case.outcome != "parse"], ids=lambda case: case.id)
def test_inference_agrees_with_the_declared_types(case: DialectCase) -> None:
    for op in IRModule.parse(case.text).op.walk():
        if not isinstance(op, CoreaiOp) or op.ROW.infer in (None, "cast"):
            continue
        inferred = infer_types(op.ROW, op.operands, op.properties)
        assert inferred is not None
        assert len(inferred) == len(op.results)
        for wanted, result in zip(inferred, op.results, strict=True):
            if isinstance(wanted, TokenType | HandleType | ImageType):
                assert wanted == result.type
                continue
            assert compatible(shape_of(wanted), shape_of(result.type)), op
            if op.ROW.name not in AUTHOR_STATES:
                assert wanted.element_type == result.type.element_type


def test_every_inference_of_the_table_exists() -> None:
    named = {op.ROW.infer for op in OPS.values() if op.ROW.infer}
    assert named == set(INFERENCES)


def test_shapes() -> None:
    assert broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert broadcast_shapes((None, 1), (2, None)) == (2, None)
    assert broadcast_shapes((), (None,)) == (None,)
    assert broadcast_shapes((0,), (1,)) == (0,)
    with pytest.raises(InferenceError, match="2x3, 4 do not broadcast"):
        broadcast_shapes((2, 3), (4,))
    assert compatible((2, None), (None, 3))
    assert not compatible((2,), (2, 3))
    assert merge((None, 3), (2, None)) == (2, 3)
    assert normalize_axis(-1, 3) == 2
    with pytest.raises(InferenceError, match="axis 3 is out of range for rank 3"):
        normalize_axis(3, 3)


def test_results_that_values_decide_are_left_to_the_author() -> None:
    text = """coreai.graph private @f(%x: tensor<4xf32>, %n: tensor<ui32>) {
      %a = coreai.constant dense<0> : tensor<si32>
      %0 = coreai.split %x, %n, %a : (tensor<4xf32>, tensor<ui32>, tensor<si32>) -> tensor<4xf32>
      coreai.output
    }"""
    op = next(op for op in IRModule.parse(text).op.walk() if op.name == "coreai.split")
    with pytest.raises(UndeterminedError):
        infer_types(op.ROW, op.operands, op.properties)

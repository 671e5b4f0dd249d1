"""`promotion` agrees with `torch.promote_types` and `torch.result_type`."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from patcomp.frontend_torch.fx.dtypes import dtype_of, type_of
from patcomp.ir.types import element_name, element_type
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patterns_catalog.promotion import promote, result_element

ELEMENTS = ("f16", "bf16", "f32", "f64", "si8", "si16", "si32", "si64", "ui8", "i1", "complex<f32>", "complex<f64>")


@pytest.mark.parametrize(("left", "right"), list(itertools.product(ELEMENTS, ELEMENTS)))
def test_promote(left: str, right: str) -> None:
    expected = torch.promote_types(dtype_of(element_type(left)), dtype_of(element_type(right)))
    assert dtype_of(element_type(promote(left, right))) == expected


TENSORS = st.builds(
    lambda element, shape: torch.zeros(shape, dtype=dtype_of(element_type(element))),
    st.sampled_from(ELEMENTS),
    st.sampled_from([(), (2,), (3, 2)]),
)
NUMBERS = st.sampled_from([True, 2, -1, 0.5, 1e300, 1j])


def _result(operands: list[torch.Tensor | complex]) -> str:
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    block = Block(arg_types=[type_of(tensor) for tensor in tensors])
    values = iter(block.args)
    made = [Value(next(values)) if isinstance(operand, torch.Tensor) else operand for operand in operands]
    return element_name(result_element(made))


@given(TENSORS, st.one_of(TENSORS, NUMBERS), st.booleans())
def test_result_element_of_two(first: torch.Tensor, second: torch.Tensor | complex, swapped: bool) -> None:
    operands = [second, first] if swapped else [first, second]
    expected = torch.result_type(*operands)
    if expected == torch.complex32:  # f16 beside a complex number; the IR has no such type and takes the next one
        assert _result(operands) == "complex<f32>"
        return
    assert dtype_of(element_type(_result(operands))) == expected


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ([torch.zeros(2, dtype=torch.int32), 0.5], "f32"),
        ([torch.zeros(2, dtype=torch.float16), 0.5], "f16"),
        ([torch.zeros(2), torch.zeros((), dtype=torch.float64)], "f32"),
        ([torch.zeros(2, dtype=torch.int8), torch.zeros((), dtype=torch.int64)], "si8"),
        ([torch.zeros(2, dtype=torch.int8), torch.zeros((), dtype=torch.float16)], "f16"),
        ([torch.zeros(2, dtype=torch.bool), 3], "si64"),
        ([torch.zeros((), dtype=torch.bool), torch.zeros((), dtype=torch.uint8)], "ui8"),
        ([torch.zeros((), dtype=torch.float16), 1e300], "f16"),
    ],
)
def test_result_element_by_example(operands: list[torch.Tensor | complex], expected: str) -> None:
    assert _result(operands) == expected

"""What a caller gives, as arrays of the types that a program takes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.evaluate.given import HELD, array_in_type
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.types import tensor

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_arrays_hold_what_tensors_hold() -> None:
    assert HELD.keys() == TORCH_DTYPES.keys()
    for element, dtype in HELD.items():
        assert to_tensor(np.zeros(1, dtype)).dtype == TORCH_DTYPES[element], element


@pytest.mark.parametrize(
    ("value", "element", "wanted"),
    [
        (np.array([1.5, np.inf]), "f32", np.array([1.5, np.inf], np.float32)),
        (np.array([1.5, -np.inf], np.float32), "f16", np.array([1.5, -np.inf], np.float16)),
        ([0.5, 2], "f16", np.array([0.5, 2], np.float16)),
        (torch.tensor([1, -(2**31)]), "si32", np.array([1, -(2**31)], np.int32)),
        (torch.tensor([0, 2**32 - 1]), "ui32", np.array([0, 2**32 - 1], np.uint32)),
        (np.array([True, False]), "i1", np.array([True, False])),
        (torch.tensor([1, 2], dtype=torch.bfloat16), "bf16", np.array([1, 2], BFLOAT16)),
        (np.array([1, -8], ml_dtypes.int4), "si4", np.array([1, -8], np.int8)),
        (np.array([1, 2], ml_dtypes.float4_e2m1fn), "f4E2M1FN", np.array([1, 2], np.float32)),
        (torch.tensor([1j, 2]).conj(), "complex<f32>", np.array([-1j, 2], np.complex64)),
        (torch.ones(2, 2)[:, 0].requires_grad_(), "f32", np.ones(2, np.float32)),
    ],
)
def test_values(value: Any, element: str, wanted: np.ndarray) -> None:
    made = array_in_type(value, tensor((2,), element), "x")
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made, wanted)
    assert torch.equal(prepare_input(value, tensor((2,), element), "x"), to_tensor(wanted))


def test_numbers_and_shared_memory() -> None:
    assert array_in_type(3, tensor((), "si32"), "x").shape == ()
    x = torch.ones(2, 3)
    assert prepare_input(x, tensor((2, None), "f32"), "x").data_ptr() == x.data_ptr()
    assert array_in_type(x.numpy().T, tensor((3, 2), "f32"), "x").flags.c_contiguous


@pytest.mark.parametrize(
    ("value", "element", "says"),
    [
        (np.array([1e300, 0]), "f32", "input 'x' has values that do not fit float32"),
        ([1e300, 0], "f32", "input 'x' has values that do not fit float32"),
        (np.array([7e4, 0], np.float32), "f16", "input 'x' has values that do not fit float16"),
        (np.array([0, 2**31]), "si32", "input 'x' has values that do not fit int32"),
        (np.array([0, -(2**31) - 1]), "si32", "input 'x' has values that do not fit int32"),
        (np.array([0, -1]), "ui32", "input 'x' has values that do not fit uint32"),
        (np.array([0, 2**64 - 1], np.uint64), "si32", "input 'x' has values that do not fit int32"),
        (np.array([0, 1]), "f32", "input 'x' must be of dtype float32, got int64"),
        (np.array([0.0, 1]), "f16", "input 'x' must be of dtype float16, got float64"),
        (np.zeros((2, 1), np.float32), "f32", r"must be of type tensor<2xf32>, got float32 of shape \(2, 1\)"),
        (np.zeros(3, np.float32), "f32", r"must be of type tensor<2xf32>, got float32 of shape \(3,\)"),
        (
            torch.zeros(2, device="meta"),
            "f32",
            "input 'x' is on the meta device and has no numbers; give a tensor on the CPU",
        ),
        ({"y": [torch.zeros(2)]}, "f32", "got a dict that holds tensors; give the tensor itself"),
        ([[1.0], [1.0, 2.0]], "f32", "must be a tensor, an array or a number, got a list"),
        (object(), "f32", "must be a tensor, an array or a number, got a object"),
    ],
)
def test_what_does_not_fit(value: Any, element: str, says: str) -> None:
    with pytest.raises(EvaluationError, match=says):
        array_in_type(value, tensor((2,), element), "x")

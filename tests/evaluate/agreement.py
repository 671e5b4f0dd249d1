"""How close the evaluator and the real runtime must be, and inputs for programs that only know their types."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch

from patcomp.evaluate.element_types import TORCH_DTYPES, array_of, round_to_f4, to_tensor
from patcomp.ir.types import element_name, is_integer, shape_of
from patcomp.ir.xdsl import TensorType

TOLERANCES = {
    torch.float16: (5e-3, 1e-3),
    torch.bfloat16: (2e-2, 1e-3),
    torch.float8_e4m3fn: (0.13, 1e-2),
    torch.float8_e5m2: (0.26, 1e-2),
    torch.float8_e8m0fnu: (0.0, 0.0),
}
"""Relative and absolute tolerance; the Linux runtime computes narrow floats in their own precision."""

SUB_BYTE = {"si2": "int2", "ui2": "uint2", "si4": "int4", "ui4": "uint4", "f4E2M1FN": "float4_e2m1fn"}
"""The `ml_dtypes` of the element types that torch holds in a wider dtype."""


def assert_agree(ours: torch.Tensor, native: np.ndarray, what: str = "result") -> None:
    """Asserts that the evaluator's tensor and the runtime's array are the same, but for rounding of floats."""
    theirs = to_tensor(native)
    assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype} here, {theirs.dtype} at run time"
    assert ours.shape == theirs.shape, f"{what}: {tuple(ours.shape)} here, {tuple(theirs.shape)} at run time"
    if ours.dtype.is_complex:
        ours, theirs = torch.view_as_real(ours), torch.view_as_real(theirs)
    if ours.is_floating_point():
        relative, absolute = TOLERANCES.get(ours.dtype, (1e-5, 1e-6))
        torch.testing.assert_close(
            ours.double(), theirs.double(), rtol=relative, atol=absolute, equal_nan=True, msg=lambda m: f"{what}: {m}"
        )
    else:
        np.testing.assert_array_equal(array_of(ours), array_of(theirs), err_msg=what)


def native_array(value: torch.Tensor, element: str) -> np.ndarray:
    """A tensor as the runtime takes it: sub-byte element types in their `ml_dtypes` dtype."""
    array = array_of(value)
    if element not in SUB_BYTE:
        return array
    import ml_dtypes

    return array.astype(getattr(ml_dtypes, SUB_BYTE[element]))


def random_input(type_: TensorType, seed: str, low: float = 0.1, high: float = 0.9) -> torch.Tensor:
    """Values of a type, the same for the same seed; integers are 1, 2 or 3, a dynamic dimension is 2."""
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    shape = [2 if dim is None else dim for dim in shape_of(type_)]
    element = element_name(type_.element_type)
    if element == "i1":
        return torch.rand(shape, generator=generator) > 0.5
    if is_integer(element):
        largest = 2 if element == "si2" else 4
        return torch.randint(1, largest, shape, generator=generator).to(TORCH_DTYPES[element])
    values = low + (high - low) * torch.rand(shape, generator=generator)
    if element == "complex<f32>":
        return torch.complex(values, torch.rand(shape, generator=generator))
    if element == "f4E2M1FN":
        return round_to_f4(6 * values)
    return values.to(TORCH_DTYPES[element])


def assert_all_agree(ours: Mapping[str, torch.Tensor], native: Mapping[str, np.ndarray]) -> None:
    """Asserts that two results by name agree."""
    assert set(ours) == set(native)
    for name, value in ours.items():
        assert_agree(value, native[name], name)

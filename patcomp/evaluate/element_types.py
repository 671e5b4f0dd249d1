"""Element types on torch: which dtype holds which, how narrow ones are computed, how results are wrapped.

Ops pass values in the torch dtype of their element type (`TORCH_DTYPES`). Torch has no dtype for sub-byte integers and
`f4E2M1FN`, so these values are held in `int8` or `uint8` and in `float32`. For arithmetic, `widen` converts integers to
`int64` (`uint64` keeps its bits) and 8-bit floats to `float32`, because torch has few kernels for the others. `narrow`
converts the result back; integers wrap around. Ops that depend on the sign of a 64-bit pattern use `ordered`, or numpy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.given import held
from patcomp.ir.types import BIT_WIDTHS, ELEMENT_OF_TORCH, ML_DTYPES, integer_range, is_integer

ELEMENT_OF_DTYPE: dict[torch.dtype, str] = {getattr(torch, name): element for name, element in ELEMENT_OF_TORCH.items()}
TORCH_DTYPES: dict[str, torch.dtype] = {
    **{element: dtype for dtype, element in ELEMENT_OF_DTYPE.items()},
    **dict.fromkeys(("si2", "si4"), torch.int8),
    **dict.fromkeys(("ui1", "ui2", "ui3", "ui4", "ui6"), torch.uint8),
    "f4E2M1FN": torch.float32,
}
"""The torch dtype in which values of an element type are held."""

_WIDE = {
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e8m0fnu: torch.float32,
    torch.int8: torch.int64,
    torch.int16: torch.int64,
    torch.int32: torch.int64,
    torch.uint8: torch.int64,
    torch.uint16: torch.int64,
    torch.uint32: torch.int64,
}

_ACCUMULATED = {torch.float16: torch.float32, torch.bfloat16: torch.float32}

_SAME_BITS = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
}
"""For each dtype without kernels for gather, index and pad, a dtype of the same size that has them."""

_SIGN_BIT = -(2**63)


def widen(tensor: Tensor) -> Tensor:
    """A tensor in the dtype that arithmetic on it is done in; `uint64` becomes its bit pattern in `int64`."""
    if tensor.dtype == torch.uint64:
        return tensor.view(torch.int64)
    wide = _WIDE.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def accumulated(tensor: Tensor) -> Tensor:
    """A tensor in the dtype that sums of products and multi-step formulas are computed in: 16-bit floats in f32."""
    wide = widen(tensor)
    return wide.to(_ACCUMULATED.get(wide.dtype, wide.dtype))


def in_doubles(tensor: Tensor) -> Tensor:
    """Integers as `float64`, nearly: to estimate whether 64-bit arithmetic overflows."""
    return torch.from_numpy(tensor.numpy().astype(np.float64)) if tensor.dtype == torch.uint64 else tensor.double()


def fits(tensor: Tensor, element: str, estimate: Tensor | None = None) -> bool:
    """Whether widened integers are in the range of an element type.

    Args:
        tensor: widened integers.
        element: name of the integer element type.
        estimate: the same values in `float64`, by which a 64-bit type is judged.
    """
    if BIT_WIDTHS[element] == 64:
        assert estimate is not None
        wrapped = tensor.view(torch.uint64) if element == "ui64" else tensor
        # the two differ by a multiple of 2^64 where 64 bits overflowed, else by what doubles round
        return bool(((estimate - in_doubles(wrapped)).abs() < 2.0**62).all())
    low, high = integer_range(element)
    return not bool(((tensor < low) | (tensor > high)).any())


def narrow(tensor: Tensor, element: str) -> Tensor:
    """A computed tensor in the dtype of an element type: integers wrap around, floats are rounded."""
    dtype = TORCH_DTYPES[element]
    if tensor.dtype == dtype and BIT_WIDTHS[element] >= 8:
        return tensor
    if is_integer(element) and tensor.dtype == torch.int64:
        bits = BIT_WIDTHS[element]
        if bits < 8:
            tensor = tensor & ((1 << bits) - 1)
            if element[0] == "s":
                tensor = tensor - ((tensor >> (bits - 1)) << bits)
        return tensor.view(torch.uint64) if dtype == torch.uint64 else tensor.to(dtype)
    if element in _ROUNDINGS:
        return _ROUNDINGS[element](tensor)
    return tensor.to(dtype)


def ordered(tensor: Tensor) -> Tensor:
    """A widened tensor whose signed order is the order of the values, for `uint64` too."""
    return tensor.view(torch.int64) ^ _SIGN_BIT if tensor.dtype == torch.uint64 else widen(tensor)


def unordered(tensor: Tensor, element: str) -> Tensor:
    """The inverse of `ordered`, in the dtype of the element type."""
    return narrow(tensor ^ _SIGN_BIT if element == "ui64" else tensor, element)


def as_bits(tensor: Tensor) -> Tensor:
    """The tensor under a dtype of the same size that torch can gather and copy; no data is moved."""
    same = _SAME_BITS.get(tensor.dtype)
    return tensor if same is None else tensor.view(same)


def moved(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Applies a function that only moves elements to tensors of one dtype, whatever torch's kernels support."""
    return function(*map(as_bits, tensors)).view(tensors[0].dtype)


def round_to_f4(tensor: Tensor) -> Tensor:
    """Floats rounded to the nearest `f4E2M1FN` value, halves to the even mantissa, NaN to 0, held in `float32`."""
    numbers = torch.nan_to_num(tensor.float(), nan=0.0).numpy()
    return torch.from_numpy(numbers.astype(ML_DTYPES["f4E2M1FN"]).astype(np.float32))


def _round_to_e4m3(tensor: Tensor) -> Tensor:
    """Values above the largest one become NaN, as at run time; torch saturates them."""
    return torch.where(tensor.abs() > 448.0, torch.nan, tensor).to(torch.float8_e4m3fn)


def _round_to_e8m0(tensor: Tensor) -> Tensor:
    """A type without sign, zero and infinity: negative values become the smallest power of two, zeros NaN."""
    undefined = (tensor == 0) | tensor.isinf()
    tensor = torch.where(tensor < 0, 2.0**-127, tensor.float())
    return torch.where(undefined, torch.nan, tensor).to(torch.float8_e8m0fnu)


_ROUNDINGS = {"f4E2M1FN": round_to_f4, "f8E4M3FN": _round_to_e4m3, "f8E8M0FNU": _round_to_e8m0}
"""The element types to which torch rounds otherwise than the runtime."""


def to_tensor(value: Tensor | np.ndarray) -> Tensor:
    """A torch tensor of a tensor or numpy array, `ml_dtypes` arrays included; shares memory where possible.

    Raises:
        EvaluationError: the array's dtype has no torch counterpart.
    """
    if isinstance(value, Tensor):
        return value.detach()
    array = held(np.asarray(value))
    if (element := _ELEMENT_OF_ML_DTYPE.get(array.dtype)) is not None:
        # ascontiguousarray makes a 0-d array 1-d
        bits = np.ascontiguousarray(array).view(f"int{8 * array.itemsize}")
        return torch.from_numpy(bits).view(TORCH_DTYPES[element]).reshape(array.shape)
    try:
        return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    except TypeError:
        raise EvaluationError(f"numpy dtype {array.dtype} has no torch counterpart") from None


_ELEMENT_OF_ML_DTYPE = {dtype: name for name, dtype in ML_DTYPES.items() if name != "f4E2M1FN"}
_ML_DTYPE_OF = {TORCH_DTYPES[name]: dtype for dtype, name in _ELEMENT_OF_ML_DTYPE.items()}


def array_of(tensor: Tensor) -> np.ndarray:
    """The array of a tensor, sharing its memory; `ml_dtypes` dtypes for bf16 and 8-bit floats."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if (dtype := _ML_DTYPE_OF.get(tensor.dtype)) is not None:
        return tensor.view(torch.int16 if dtype.itemsize == 2 else torch.uint8).numpy().view(dtype)
    return tensor.numpy()

"""Element types: what a file calls them, casts between them, and constants."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp.onnx.importing.rows import KnownNumber, OnnxRow, on_numbers, onnx_op
from patcomp.onnx.importing.values import KnownArray, known_array

TORCH_TYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 4: torch.uint16, 5: torch.int16, 6: torch.int32, 7: torch.int64,
    9: torch.bool, 10: torch.float16, 11: torch.float64, 12: torch.uint32, 13: torch.uint64, 14: torch.complex64,
    15: torch.complex128, 16: torch.bfloat16, 17: torch.float8_e4m3fn, 18: torch.float8_e4m3fnuz,
    19: torch.float8_e5m2, 20: torch.float8_e5m2fnuz, 21: torch.uint8, 22: torch.int8,
}  # fmt: skip
"""The element types of PyTorch by those of `TensorProto`; integers of 4 bits are in bytes. Texts have none."""


def torch_type(number: int) -> torch.dtype:
    """The element type of PyTorch.

    Raises:
        TypeError: PyTorch has none, such as for texts.
    """
    if number not in TORCH_TYPES:
        raise TypeError(f"PyTorch has no tensors of the element type {number} of ONNX")
    return TORCH_TYPES[number]


@onnx_op("Cast")
def _cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(torch_type(to))


@onnx_op("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(like.dtype)


@on_numbers("Cast")
def cast_numbers(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> KnownArray:
    dtype = torch_type(to)
    to_type = float if dtype.is_floating_point else bool if dtype == torch.bool else int
    return known_array(_each(x, lambda number: _converted(number, to_type)), dtype)


def _converted(number: Any, to_type: type) -> Any:
    if isinstance(number, bool | int | float):
        return to_type(number)
    if to_type is bool:
        return bool(number != 0)
    return torch.sym_float(number) if to_type is float else torch.sym_int(number)


def _each(x: Any, function: Any) -> Any:
    made = x.copy()
    flat = made.reshape(-1)
    flat[:] = [function(number) for number in x.reshape(-1)]
    return flat.reshape(x.shape)


@onnx_op("Constant")
def _constant(
    *,
    value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
) -> Any:
    """The one value that is given; a tensor of the file is a weight or known numbers already."""
    if value is not None:
        return value
    for given, dtype in ((value_float, torch.float32), (value_floats, torch.float32), (value_int, torch.int64)):
        if given is not None:
            return known_array(list(given) if isinstance(given, list) else given, dtype)
    return known_array(list(value_ints), torch.int64)


@onnx_op("Identity", "Optional", "OptionalGetElement")
def identity(x: Any) -> Any:
    return x


@onnx_op("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = x.shape
    whole = torch.ones(rows, columns, dtype=torch.int32, device=x.device)
    band = torch.triu(whole, k) - torch.triu(whole, k + 1)
    return band.to(x.dtype if dtype is None else torch_type(dtype))


@onnx_op("Range")
def _range_(start: KnownNumber, limit: KnownNumber, delta: KnownNumber, *, stash_type: int = 1) -> Tensor:
    return torch.arange(start, limit, delta)


def unary_ops(functions: dict[str, Any]) -> None:
    """Declare ops of one tensor, without attributes."""
    for name, function in functions.items():
        onnx_op(name)(_of_one(function))


def _of_one(function: Any) -> OnnxRow:
    def row(x: Tensor) -> Any:
        return function(x)

    return row

"""The operators of coreai-opt and torchao, as these libraries describe them, for tests that do without the libraries.

Programs of coreai-opt have operators that coreai-torch registers, those of torchao some that torchao registers. A test
imports this module for its effect; where a library is here, its own operators stay.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import registered_overload
from patcomp.ir.aten import parse_schema

if find_spec("torchao"):  # before the declarations, which would keep it from registering its own
    import_module("torchao")

LIBRARIES = {name: torch.library.Library(name, "FRAGMENT") for name in ("coreai", "torchao")}
SCHEMAS = {
    line.partition("(")[0]: line
    for line in files("patcomp.ir").joinpath("library_schemas.txt").read_text().splitlines()
}


def defined(function: Callable[..., Tensor], name: str) -> None:
    if registered_overload(parse_schema(SCHEMAS[name]).name) is not None:
        return
    namespace, _, op = name.partition("::")
    LIBRARIES[namespace].define(SCHEMAS[name].removeprefix(f"{namespace}::"))
    LIBRARIES[namespace].impl(op, function, "CPU")
    torch.library.register_fake(name, FAKES[op])


STORED = (torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _check(dtypes: tuple[torch.dtype, ...], *tensors: Tensor) -> None:
    if any(tensor.dtype not in dtypes for tensor in tensors):
        raise TypeError(f"expected tensors of {dtypes}")


def _blocks(parameter: Tensor, like: Tensor) -> Tensor:
    """Scales or offsets of blocks, one for each element."""
    wide = parameter.float()
    for dim, size in enumerate(like.shape):
        wide = wide.repeat_interleave(size // wide.shape[dim], dim=dim)
    return wide


def _smallest(dtype: torch.dtype) -> float:
    name = str(dtype).removeprefix("torch.")
    return 0.0 if name.startswith("u") else -float(2 ** (int(name.removeprefix("int")) - 1))


def blockwise(
    input: Tensor, scale: Tensor, zero_point: Tensor | None = None, minval: Tensor | None = None,
    input_dtype: torch.dtype | None = None, output_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    _check((*STORED, *FLOATS), input)
    _check(FLOATS, scale)
    if input_dtype is not None and ("uint" in str(input_dtype), False) != (
        input.dtype == torch.uint8,
        input.dtype in FLOATS,
    ):
        raise TypeError(f"{input.dtype} cannot hold {input_dtype}")
    data = input.float()
    if zero_point is not None:
        data = data - _blocks(zero_point, input)
    elif minval is not None:
        data = data - _smallest(input_dtype or input.dtype)
    made = data * _blocks(scale, input)
    if minval is not None:
        made = made + _blocks(minval, input)
    return made.to(output_dtype or scale.dtype)


def lut_to_dense(indices: Tensor, lut: Tensor, axis: int) -> Tensor:
    _check((torch.uint8,), indices)
    block, axis = [], axis % indices.dim()
    for dim, size in enumerate(indices.shape):
        number = torch.arange(size) // (size // lut.shape[dim])
        block.append(number.reshape([-1 if position == dim else 1 for position in range(indices.dim())]))
    entries = lut[(*block, indices.long())]
    return entries.movedim(-1, axis + 1).flatten(axis, axis + 1)


def sparse_to_dense(nonzero_data: Tensor, mask: Tensor) -> Tensor:
    dense = torch.zeros(mask.shape, dtype=nonzero_data.dtype)
    dense[mask != 0] = nonzero_data
    return dense


def _spread(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    if parameter.numel() == 1:
        return parameter.float().reshape([])
    return parameter.float().reshape([-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())])


def quantize(
    input: Tensor, scale: Tensor, output_dtype: torch.dtype, zero_point: Tensor | None = None,
    minval: Tensor | None = None, axis: int = 0,
) -> Tensor:  # fmt: skip
    _check(FLOATS, input, scale)
    moved = input.float() if minval is None else input.float() - _spread(minval, input, axis)
    steps = moved / _spread(scale, input, axis)
    if output_dtype.is_floating_point:
        limit = torch.finfo(output_dtype).max
        return steps.clamp(-limit, limit).to(output_dtype)
    bits = int(str(output_dtype).rpartition("int")[2])
    low = _smallest(output_dtype)
    shift = _spread(zero_point, input, axis) if zero_point is not None else low if minval is not None else 0.0
    stored = torch.uint8 if low == 0 else torch.int8
    return (steps.round() + shift).clamp(low, low + 2**bits - 1).to(stored)


def dequantize(
    input: Tensor, scale: Tensor, zero_point: Tensor | None = None, minval: Tensor | None = None, axis: int = 0,
    input_dtype: torch.dtype | None = None, output_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    _check(STORED, input)
    _check(FLOATS, scale)
    data = input.float()
    if zero_point is not None:
        data = data - _spread(zero_point, input, axis)
    elif minval is not None:
        data = data - _smallest(input_dtype or input.dtype)
    made = data * _spread(scale, input, axis)
    if minval is not None:
        made = made + _spread(minval, input, axis)
    return made.to(output_dtype or scale.dtype)


def dequantize_affine(
    input: Tensor, block_size: list[int], scale: Tensor, zero_point: Tensor | None, input_dtype: torch.dtype,
    quant_min: float | None = None, quant_max: float | None = None, output_dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    _check(STORED, input)
    _check(FLOATS, scale)
    blocks = [size // block for size, block in zip(input.shape, block_size, strict=True)]
    data = input.to(torch.float32)
    if zero_point is not None:
        data = data - _blocks(zero_point.reshape(blocks), input)
    return (data * _blocks(scale.reshape(blocks), input)).to(output_dtype)


def _fake_lut(indices: Tensor, lut: Tensor, axis: int) -> Tensor:
    sizes = list(indices.shape)
    sizes[axis] *= lut.shape[-1]
    return lut.new_empty(sizes)


def _fake_quantized(
    input: Tensor, scale: Tensor, output_dtype: torch.dtype, zero_point: Any = None, minval: Any = None, axis: int = 0
) -> Tensor:
    narrow = not output_dtype.is_floating_point and str(output_dtype).startswith("torch.uint")
    stored = output_dtype if output_dtype.is_floating_point else torch.uint8 if narrow else torch.int8
    return torch.empty_like(input, dtype=stored)


FAKES: dict[str, Callable[..., Tensor]] = {
    "constexpr_blockwise_shift_scale": lambda input, scale, zero_point=None, minval=None, input_dtype=None,
        output_dtype=None: torch.empty_like(input, dtype=output_dtype or scale.dtype), "lut_to_dense": _fake_lut,
    "sparse_to_dense": lambda values, mask: values.new_empty(mask.shape), "quantize": _fake_quantized,
    "dequantize": lambda input, scale, zero_point=None, minval=None, axis=0, input_dtype=None, output_dtype=None:
        torch.empty_like(input, dtype=output_dtype or scale.dtype),
    "dequantize_affine": lambda input, block_size, scale, zero_point, input_dtype, quant_min=None, quant_max=None,
        output_dtype=torch.float32: torch.empty_like(input, dtype=output_dtype),
}  # fmt: skip
for _function, _name in (
    (blockwise, "coreai::constexpr_blockwise_shift_scale"), (lut_to_dense, "coreai::lut_to_dense"),
    (sparse_to_dense, "coreai::sparse_to_dense"), (quantize, "coreai::quantize"), (dequantize, "coreai::dequantize"),
    (dequantize_affine, "torchao::dequantize_affine"),
):  # fmt: skip
    defined(_function, _name)

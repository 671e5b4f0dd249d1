"""Compressed weights as coreai-opt and torchao leave them: integers, tables and masks that an operator makes floats of.

In a PyTorch program each element takes a byte at least. Here it takes its bits: the operator says how many, and never
the range of the values. A weight reaches the asset behind one of Core AI's own ops, because the toolchain computes all
other ops on constants when it saves, and would store floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values, weight_key
from patcomp.ir.types import BIT_WIDTHS, element_name, integer_range, is_integer
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import OpView, Rejected, example, lowering

_OP, _OWN = "torch_coreai.", "torch_patcomp."
_INDEX_BITS = (1, 2, 3, 4, 6, 8)
_SCALES = ("f32", "f16", "bf16")
_FLOATS = ("f8E4M3FN", "f8E5M2")
_SCALED = ("si2", "ui2", "si4", "ui4", "si8", "ui8", "si16", "ui16", *_FLOATS, *_SCALES)
_QUANTIZED = ("si4", "ui4", "si8", "ui8", *_FLOATS)


def _values(x: Value) -> np.ndarray | None:
    return constant_values(x.ssa, Builder.current().blobs)


def _name(x: Value) -> str | None:
    """The name of a weight, for what is stored in its place."""
    return weight_key(x.ssa)


def _not_constant(x: Value, what: str) -> Rejected:
    where = ""
    if x.maker is None:  # the weights of such a module are its arguments
        where = "; it goes into an externalized module, so externalize modules without compressed weights only"
    return Rejected(f"{what} must be a constant of the model{where}")


def _holds(element: str, numbers: np.ndarray) -> bool:
    """Whether an element type has some integers. Core AI subtracts only zeros from floats."""
    low, high = integer_range(element) if is_integer(element) else (0, 0)
    return numbers.size == 0 or bool(low <= numbers.min() and numbers.max() <= high)


def _narrowed(op: OpView, c: Coreai, x: Value, element: str) -> Value:
    """A constant in the element type that says how many bits each element takes."""
    if x.dtype == element:
        return x
    values = _values(x)
    if values is None:
        raise _not_constant(x, f"{element} data")
    is_known = is_integer(x.dtype) and is_integer(element)
    op.expect(is_known and _holds(element, values), f"the data has values that {element} cannot hold")
    return c.constant(values, element, name=_name(x))


def _shifts(op: OpView, c: Coreai, element: str, shape: Sequence[int], base: str | Attribute) -> tuple[Value, Value]:
    """What is subtracted before the scale, in the element type of the data, and what is added after it.

    A zero point is subtracted. With `minval`, the smallest integer stands for that float; of floats, 0.0 does.
    """
    zero_point, minval = op.zero_point, op.minval
    op.expect(zero_point is None or minval is None, "zero_point and minval exclude each other")
    shift, base_shift = np.zeros(shape), c.constant(np.zeros(shape), base)
    if zero_point is None and minval is None:
        return c.constant(shift, element), base_shift
    op.expect(zero_point is None or is_integer(element), "data of floats takes no zero_point")
    if minval is not None:
        least = integer_range(element)[0] if is_integer(element) else 0
        return c.constant(shift + least, element), c.reshape(c.cast(minval, base), shape)
    known = _values(zero_point)
    if known is None:
        raise _not_constant(zero_point, "the zero point")
    op.expect(_holds(element, known), f"the zero point has values that {element} cannot hold")
    shift = np.broadcast_to(known if known.size == 1 else known.reshape(shape), shape) if shape else known.reshape(())
    return c.constant(shift, element), base_shift


def _data(op: OpView, c: Coreai) -> Value:
    """The input in the element type that `input_dtype` says."""
    stated = op.input_dtype
    return _narrowed(op, c, op.input, op.input.dtype if stated is None else element_name(stated))


@lowering(f"{_OP}constexpr_blockwise_shift_scale", f"{_OWN}blockwise_shift_scale", examples=[
    example("4x8xsi8[-128,127]", "4x1xf32[0.01,0.02]"), example("4x8xui8[0,255]", "4x2xf16[0.01,0.02]"),
    example("4x8xsi8[-128,127]", "4x1xf32[0.01,0.02]", minval="4x1xf32"),
    example("4x8xsi8[-128,127]", "1x1xf32[0.01,0.02]", input_dtype="si8", output_dtype="f16"),
])  # fmt: skip
def constexpr_blockwise_shift_scale(op: OpView, c: Coreai) -> Value:
    "scale * (data - zero point), or scale * (data - smallest integer) + minval, with the parameters of each block"
    op.ignore("output_dtype", because="the type of the result has it")
    scale, element = op.scale, op.result.element_type
    op.expect(scale.rank == op.input.rank, "the scale must have the rank of the data")
    op.expect(element_name(element) in _SCALES, "the result must be f32, f16 or bf16")
    if scale.dtype in _SCALES and element_name(element) == "f32":
        scale = c.cast(scale, element)  # Core AI computes in the type of the scale
    base = scale.element_type if scale.dtype in _SCALES else element
    data = _data(op, c)
    op.expect(data.dtype in _SCALED, f"the data must be one of {', '.join(_SCALED)}")
    return c.cast(c.blockwise_shift_scale(data, scale, *_shifts(op, c, data.dtype, scale.static_shape, base)), element)


@lowering(f"{_OP}lut_to_dense", f"{_OWN}lut_to_dense", examples=[
    example("4x8xui8[0,255]", "1x1x256x1xf32", 0), example("4x8xui8[0,255]", "2x1x256x1xf16", 1),
    example("4x8xui8[0,255]", "1x1x256x2xf32", 0), example("4x8xui8[0,255]", "1x1x256x1xsi8[-128,127]", -1),
])  # fmt: skip
def lut_to_dense(op: OpView, c: Coreai) -> Value:
    "the entries of a table, or of one for each block, at indices; entries that are vectors lie along an axis"
    indices, table = op.indices, op.lut
    op.expect(table.rank == indices.rank + 2, "the table must have two more dimensions than the indices")
    bits = (table.static_shape[-2] - 1).bit_length()
    op.expect(table.static_shape[-2] == 1 << bits and bits in _INDEX_BITS, "a table has 2, 4, 8, 16, 64 or 256 entries")
    return c.lut_to_dense(_narrowed(op, c, indices, f"ui{bits}"), table, op.axis % indices.rank)


@lowering(f"{_OP}sparse_to_dense", examples=[
    example("3xf32", program=lambda torch, x: torch.ops.coreai.sparse_to_dense(
        x, torch.tensor([[True, False], [False, True], [True, False]]))),
])  # fmt: skip
def sparse_to_dense(op: OpView, c: Coreai) -> Value:
    "the values in the places of a mask, in order, and zeros elsewhere"
    values, mask = op.nonzero_data, _values(op.mask)
    if mask is None:
        raise _not_constant(op.mask, "the mask")
    op.expect(values.shape == (np.count_nonzero(mask),), "there must be one value for each place of the mask")
    bits = c.constant(mask != 0, "ui1", name=_name(op.mask))
    return c.sparse_with_bitmask_to_dense(c.build_sparse_with_bitmask(values, bits))


def _along(op: OpView, c: Coreai, x: Value) -> tuple[Value, tuple[int, ...], list[int]]:
    """The scale of the whole tensor as 0-d, of the slices of an axis as 1-d; its shape, and the axes."""
    scale, axis = op.scale, op.axis % x.rank
    op.expect(x.rank > 0, "the input must have dimensions")
    if math.prod(scale.static_shape) == 1:
        return c.reshape(scale, []), (), list(range(x.rank))
    op.expect(scale.static_shape[axis if scale.rank == x.rank else 0] == math.prod(scale.static_shape) == x.shape[axis],
              "there must be one scale, or one for each slice of the axis")  # fmt: skip
    return c.reshape(scale, [-1]), (x.static_shape[axis],), [axis]


@lowering(f"{_OP}quantize", examples=[
    example("2x3xf32", "f32[0.03,0.04]", "si8"), example("2x3xf32", "3xf32[0.03,0.04]", "ui8", axis=1),
    example("2x3xf32", "3xf32[0.03,0.04]", "si8", minval="3xf32", axis=-1),
])  # fmt: skip
def quantize(op: OpView, c: Coreai) -> Value:
    "round(x / scale) + zero point, or round((x - minval) / scale) + smallest integer, between the limits"
    x, element = op.input, element_name(op.output_dtype)
    op.expect(x.dtype in _SCALES and op.scale.dtype in _SCALES, "the input and the scale must be f32, f16 or bf16")
    op.expect(element in _QUANTIZED, f"the result must be one of {', '.join(_QUANTIZED)}")
    scale, shape, axes = _along(op, c, x)
    return c.cast(c.quantize(x, scale, *_shifts(op, c, element, shape, x.element_type), axes), op.result.element_type)


@lowering(f"{_OP}dequantize", examples=[
    example("2x3xsi8[-128,127]", "f32[0.03,0.04]"), example("2x3xui8[0,255]", "3xf32[0.03,0.04]", axis=1),
    example("2x3xsi8[-128,127]", "3xf32[0.03,0.04]", minval="3xf32", axis=-1, output_dtype="f16"),
])  # fmt: skip
def dequantize(op: OpView, c: Coreai) -> Value:
    "(x - zero point) * scale, or (x - smallest integer) * scale + minval"
    op.ignore("output_dtype", because="the type of the result has it")
    x, element = op.input, op.result.element_type
    # 4-bit activations are bytes in PyTorch; the values fit, because `quantize` clamps them
    data = x if op.input_dtype is None else c.cast(x, op.input_dtype)
    op.expect(data.dtype in _QUANTIZED, f"the input must be one of {', '.join(_QUANTIZED)}")
    op.expect(element_name(element) in _SCALES, "the result must be f32, f16 or bf16")
    scale, shape, axes = _along(op, c, x)
    base = scale.element_type if scale.dtype in _SCALES else element
    return c.cast(c.dequantize(data, scale, *_shifts(op, c, data.dtype, shape, base), axes), element)


def _integers(c: Coreai, x: Value, values: np.ndarray, least: float, most: float, floats: Attribute) -> Value | None:
    """Integers of a range in as few bits as there are; None if they have more than 16.

    There are no integers of 3 and 6 bits, but indices, which the table of the range makes integers again, as floats.
    """
    for bits in (1, 2, 3, 4, 6, 8, 16):
        if most - least >= 1 << bits:
            continue
        for element in (f"si{bits}", f"ui{bits}"):
            if element in _SCALED and _holds(element, np.array([least, most])):
                return c.constant(values, element, name=_name(x))
        if bits in (1, 3, 6):
            table = np.arange(least, least + (1 << bits)).reshape([1] * values.ndim + [-1, 1])
            indices = c.constant(values - int(least), f"ui{bits}", name=_name(x))
            return c.lut_to_dense(indices, c.constant(table, floats), 0)
    return None


@lowering("torchao.dequantize_affine", examples=[
    example("4x8xsi8[-128,127]", [1, 4], "4x2xf32[0.01,0.02]", None, "si8", output_dtype="f32"),
    example("4x8xui8[0,255]", [4, 8], "f32[0.01,0.02]", "si32[-3,3]", "ui8", output_dtype="f32"),
    example("4x8xsi8[-8,7]", [1, 8], "4xf16[0.01,0.02]", "4xsi8[-3,3]", "si8", -8, 7, output_dtype="f16"),
])  # fmt: skip
def dequantize_affine(op: OpView, c: Coreai) -> Value:
    """(data - zero point) * scale with the parameters of each block

    The limits of the quantization say how many bits a constant needs.
    """
    op.ignore("output_dtype", "input_dtype", because="the types of the result and the input have them")
    x, element, limits, scale = op.input, op.result.element_type, (op.quant_min, op.quant_max), op.scale
    op.expect(scale.dtype in _SCALES and element_name(element) in _SCALES, "scale and result must be f32, f16 or bf16")
    op.expect(len(op.block_size) == x.rank > 0, "there must be dimensions, and one block size for each")
    blocks = [size // block for size, block in zip(x.static_shape, op.block_size, strict=True)]
    scale, zero_point = c.reshape(scale, blocks), op.zero_point
    if BIT_WIDTHS[element_name(element)] > BIT_WIDTHS[scale.dtype]:  # the product is one of the result's type
        scale = c.cast(scale, element)
    base_shift = c.constant(np.zeros(blocks), scale.element_type)
    values, shift = _values(x), np.zeros(1) if zero_point is None else _values(zero_point)
    data: Value | None = x
    if values is not None and values.size and shift is not None and is_integer(x.dtype):
        least, most = (integer_range(x.dtype)[i] if limits[i] is None else limits[i] for i in (0, 1))
        data = _integers(c, x, values, min(least, values.min()), max(most, values.max()), scale.element_type)
    if data is not None and shift is not None and (data.dtype in _SCALES or _holds(data.dtype, shift)):
        shift = np.broadcast_to(shift if shift.size == 1 else shift.reshape(blocks), blocks)
        offset = c.constant(shift, data.element_type)
    else:  # in floats there is room for any zero point
        data = c.cast(x, "f32")
        offset = (
            c.constant(np.zeros(blocks), "f32") if zero_point is None else c.reshape(c.cast(zero_point, "f32"), blocks)
        )
    return c.cast(c.blockwise_shift_scale(data, scale, offset, base_shift), element)

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
from patcomp.ir.constants import weight_key
from patcomp.ir.types import BIT_WIDTHS, element_name, integer_range, is_integer
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import OpView, Rejected, call, example, formula, lowering
from patterns_catalog.numbers import known_numbers

_OP, _OWN = "torch_coreai.", "torch_patcomp."
_INDEX_BITS = (1, 2, 3, 4, 6, 8)
_SCALES = ("f32", "f16", "bf16")
_FLOATS = ("f8E4M3FN", "f8E5M2")
_SCALED = ("si2", "ui2", "si4", "ui4", "si8", "ui8", "si16", "ui16", *_FLOATS, *_SCALES)
_QUANTIZED = ("si4", "ui4", "si8", "ui8", *_FLOATS)


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


def _narrowed(c: Coreai, x: Value, element: str) -> Value:
    """A constant in the element type that says how many bits each element takes."""
    if x.dtype == element:
        return x
    values = known_numbers(x)
    if values is None:
        raise _not_constant(x, f"{element} data")
    if not (is_integer(x.dtype) and is_integer(element) and _holds(element, values)):
        raise Rejected(f"the data has values that {element} cannot hold")
    return c.constant(values, element, name=_name(x))


def _shifts(
    c: Coreai, zero_point: Value | None, minval: Value | None, element: str, shape: Sequence[int], base: str | Attribute
) -> tuple[Value, Value]:
    """What is subtracted before the scale, in the element type of the data, and what is added after it.

    A zero point is subtracted. With `minval`, the smallest integer stands for that float; of floats, 0.0 does.
    """
    if zero_point is not None and minval is not None:
        raise Rejected("zero_point and minval exclude each other")
    shift, base_shift = np.zeros(shape), c.constant(np.zeros(shape), base)
    if zero_point is None and minval is None:
        return c.constant(shift, element), base_shift
    if zero_point is not None and not is_integer(element):
        raise Rejected("data of floats takes no zero_point")
    if minval is not None:
        least = integer_range(element)[0] if is_integer(element) else 0
        return c.constant(shift + least, element), c.reshape(c.cast(minval, base), shape)
    assert zero_point is not None
    known = known_numbers(zero_point)
    if known is None:
        raise _not_constant(zero_point, "the zero point")
    if not _holds(element, known):
        raise Rejected(f"the zero point has values that {element} cannot hold")
    shift = np.broadcast_to(known if known.size == 1 else known.reshape(shape), shape) if shape else known.reshape(())
    return c.constant(shift, element), base_shift


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
    data = _narrowed(c, op.input, op.input.dtype if op.input_dtype is None else element_name(op.input_dtype))
    op.expect(data.dtype in _SCALED, f"the data must be one of {', '.join(_SCALED)}")
    shifts = _shifts(c, op.zero_point, op.minval, data.dtype, scale.static_shape, base)
    return c.cast(c.blockwise_shift_scale(data, scale, *shifts), element)


@formula("lower", f"{_OP}lut_to_dense", f"{_OWN}lut_to_dense", where=lambda indices, lut: [
    (lut.rank == indices.rank + 2).says("the table must have two more dimensions than the indices"),
    lut.shape[-2].is_in(*(1 << bits for bits in _INDEX_BITS)).says("a table has 2, 4, 8, 16, 64 or 256 entries"),
], examples=[
    example("4x8xui8[0,255]", "1x1x256x1xf32", 0), example("4x8xui8[0,255]", "2x1x256x1xf16", 1),
    example("4x8xui8[0,255]", "1x1x256x2xf32", 0), example("4x8xui8[0,255]", "1x1x256x1xsi8[-128,127]", -1),
])  # fmt: skip
def lut_to_dense(c: Coreai, indices: Value, lut: Value, axis: int) -> Value:
    "the entries of a table, or of one for each block, at indices; entries that are vectors lie along an axis"
    bits = (lut.static_shape[-2] - 1).bit_length()
    return c.lut_to_dense(_narrowed(c, indices, f"ui{bits}"), lut, axis % indices.rank)


@lowering(f"{_OP}sparse_to_dense", examples=[
    example("3xf32", program=lambda torch, x: torch.ops.coreai.sparse_to_dense(
        x, torch.tensor([[True, False], [False, True], [True, False]]))),
])  # fmt: skip
def sparse_to_dense(op: OpView, c: Coreai) -> Value:
    "the values in the places of a mask, in order, and zeros elsewhere"
    values, mask = op.nonzero_data, known_numbers(op.mask)
    if mask is None:
        raise _not_constant(op.mask, "the mask")
    op.expect(values.shape == (np.count_nonzero(mask),), "there must be one value for each place of the mask")
    bits = c.constant(mask != 0, "ui1", name=_name(op.mask))
    return c.sparse_with_bitmask_to_dense(c.build_sparse_with_bitmask(values, bits))


def _along(c: Coreai, x: Value, scale: Value, axis: int) -> tuple[Value, tuple[int, ...], list[int]]:
    """The scale of the whole tensor as 0-d, of the slices of an axis as 1-d; its shape, and the axes."""
    if x.rank == 0:
        raise Rejected("the input must have dimensions")
    axis %= x.rank
    if math.prod(scale.static_shape) == 1:
        return c.reshape(scale, []), (), list(range(x.rank))
    if not scale.static_shape[axis if scale.rank == x.rank else 0] == math.prod(scale.static_shape) == x.shape[axis]:
        raise Rejected("there must be one scale, or one for each slice of the axis")
    return c.reshape(scale, [-1]), (x.static_shape[axis],), [axis]


@formula("lower", f"{_OP}quantize", where=lambda input, scale, output_dtype: [
    (input.dtype.is_in(*_SCALES) & scale.dtype.is_in(*_SCALES)).says(
        "the input and the scale must be f32, f16 or bf16"),
    call(element_name, output_dtype).is_in(*_QUANTIZED).says(f"the result must be one of {', '.join(_QUANTIZED)}"),
], examples=[
    example("2x3xf32", "f32[0.03,0.04]", "si8"), example("2x3xf32", "3xf32[0.03,0.04]", "ui8", axis=1),
    example("2x3xf32", "3xf32[0.03,0.04]", "si8", minval="3xf32", axis=-1),
])  # fmt: skip
def quantize(
    c: Coreai, input: Value, scale: Value, zero_point: Value | None, minval: Value | None, axis: int,
    output_dtype: Attribute, result: ValueType,
) -> Value:  # fmt: skip
    "round(x / scale) + zero point, or round((x - minval) / scale) + smallest integer, between the limits"
    scale, shape, axes = _along(c, input, scale, axis)
    shifts = _shifts(c, zero_point, minval, element_name(output_dtype), shape, input.element_type)
    return c.cast(c.quantize(input, scale, *shifts, axes), result.element_type)


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
    scale, shape, axes = _along(c, x, op.scale, op.axis)
    base = scale.element_type if scale.dtype in _SCALES else element
    shifts = _shifts(c, op.zero_point, op.minval, data.dtype, shape, base)
    return c.cast(c.dequantize(data, scale, *shifts, axes), element)


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
    values, shift = known_numbers(x), np.zeros(1) if zero_point is None else known_numbers(zero_point)
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

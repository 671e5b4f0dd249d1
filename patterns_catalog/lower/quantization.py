"""Quantized tensors as quantizers for `torch.export` write them: plain integers between `quantized_decomposed` ops.

Core AI's own `quantize` and `dequantize` take 8-bit elements whose zero points are known; all else is arithmetic.
A weight stays the integers that it is, because constant folding leaves large constants alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.types import element_name, is_float
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Capture, OpView, Rejected, example, formula, lowering
from patcomp.patterns.conditions import is_integral
from patcomp.patterns.expressions import Expression
from patterns_catalog.lower.casts import BY_RESULT
from patterns_catalog.lower.reductions import reduce
from patterns_catalog.numbers import known_numbers

_OP = "quantized_decomposed."

_RANGES = {"si8": (-128, 127), "ui8": (0, 255)}
"""The range of each element type that Core AI's own ops quantize to here; to floats, they do not round as PyTorch."""


def _known(zero_point: Value | int | None) -> np.ndarray | None:
    """The values of zero points; None if they are computed."""
    if isinstance(zero_point, Value):
        return known_numbers(zero_point)
    return np.array(zero_point or 0)


class _Parameters:
    """Scale and zero point of a tensor: 0-d for all of it, or 1-d for the slices of an axis."""

    def __init__(
        self, c: Coreai, x: Value, scale: Value | float, zero_point: Value | int | None, axis: int | None = None
    ):
        self.c, self.x, self.axis = c, x, None if axis is None else axis % x.rank
        if self.axis is not None and isinstance(scale, Value):
            sizes = {*scale.shape, x.shape[self.axis]} - {None}
            if scale.rank != 1 or len(sizes) > 1:
                raise Rejected("there must be one scale for each slice of the quantized axis")
        element = scale.element_type if isinstance(scale, Value) and scale.dtype != "f64" else "f32"
        self.scale = self._value(scale, element)
        self.zero_point = 0 if zero_point is None else zero_point

    def _value(self, value: Value | float, element: str | Attribute) -> Value:
        if not isinstance(value, Value):
            return self.c.constant(value, element)
        value = self.c.cast(value, element)
        return self.c.reshape(value, []) if self.axis is None and value.rank else value

    def _spread(self, value: Value) -> Value:
        """A scale or zero point, shaped to broadcast with the tensor."""
        if self.axis is None:
            return value
        return self.c.expand_dims(value, [dim for dim in range(self.x.rank) if dim != self.axis])

    def spread_scale(self) -> Value:
        return self._spread(self.scale)

    def spread_zero_point(self, element: str | Attribute) -> Value:
        return self._spread(self._value(self.zero_point, element))

    def operands(self, element: Attribute, base: str | Attribute) -> tuple[Value, Value, Value, Any] | None:
        """Scale, offsets and axes of Core AI's own ops for elements that are quantized; None if these cannot be used.

        Args:
            base: the element type of the offset that is a float, which is 0.
        """
        known = _known(self.zero_point)
        low, high = _RANGES.get(element_name(element), (0, -1))
        if known is None or not self.x.rank or None in self.scale.shape or np.any((known < low) | (known > high)):
            return None
        known = known.reshape(-1) if self.scale.rank else known.reshape(())
        offset = self.c.constant(np.broadcast_to(known, self.scale.static_shape), element)
        axes = list(range(self.x.rank)) if self.axis is None else self.axis
        return self.scale, offset, self.c.constant(np.zeros(self.scale.static_shape), base), axes


def _to_integers(result: Capture) -> list[Expression]:
    return [is_integral(result).says("quantization to float elements is not supported; quantize to integers")]


def _quantized(c: Coreai, x: Value, parameters: _Parameters, element: Attribute, *limits: Any) -> Value:
    native = parameters.operands(element, "f32")
    if native is not None and not any(isinstance(limit, Value) for limit in limits):
        made, bounds = c.quantize(x, *native), _RANGES[element_name(element)]
        if limits[0] > bounds[0]:
            made = c.broadcasting_maximum(made, c.constant(limits[0], element))
        return c.broadcasting_minimum(made, c.constant(limits[1], element)) if limits[1] < bounds[1] else made
    low, high = (
        c.reshape(c.cast(limit, "f32"), []) if isinstance(limit, Value) else c.constant(float(limit), "f32")
        for limit in limits
    )
    # PyTorch multiplies by the inverse, which rounds other than a division
    inverse = c.cast(c.broadcasting_divide(1.0, parameters.spread_scale()), "f32")
    rounded = c.round_(c.broadcasting_mul(x, inverse))
    moved = c.broadcasting_add(rounded, parameters.spread_zero_point("f32"))
    return c.cast(c.broadcasting_minimum(c.broadcasting_maximum(moved, low), high), element)


_LIMITS = dict.fromkeys(("quant_min", "quant_max"), "it only says what the values are between")
_TYPES = dict.fromkeys(("dtype", "out_dtype"), "the type of the input or the result has it")


def _dequantized(c: Coreai, parameters: _Parameters, element: Attribute, computed_in: str) -> Value:
    """`(x - zero point) * scale`; the difference is computed in another type with an axis than without."""
    native = parameters.operands(parameters.x.element_type, element)
    if native is not None:
        return c.dequantize(parameters.x, *native)
    difference = c.broadcasting_sub(c.cast(parameters.x, computed_in), parameters.spread_zero_point(computed_in))
    product = c.broadcasting_mul(c.cast(difference, parameters.scale.element_type), parameters.spread_scale())
    return c.cast(product, element)


@formula(
    "lower", f"{_OP}quantize_per_tensor", f"{_OP}quantize_per_tensor.tensor", f"{_OP}quantize_per_tensor.tensor2",
    ignored=BY_RESULT, where=_to_integers, examples=[
        example("2x3xf32", 0.03125, 3, -128, 127, "si8"), example("2x3xf32", 0.0625, 128, 0, 255, "ui8"),
        example("2x9xf32", 0.25, 0, -8, 7, "si8"), example("2x3xf32", 2.0**-9, 5, -32768, 32767, "si16"),
        example("f32", 0.03125, 3, -128, 127, "si8"), example("2x3xf32", 0.03125, 300, -128, 127, "si8"),
        example("2x3xf32", "1xf32[0.03,0.04]", "1xsi64[-3,3]", -128, 127, "si8", op=f"{_OP}quantize_per_tensor.tensor"),
        example(
            "2x3xf32", "f32[0.03,0.04]", "si32[-3,3]", "si32[-99,-99]", "si32[99,99]", "si8",
            op=f"{_OP}quantize_per_tensor.tensor2",
        ),
    ],
)  # fmt: skip
def quantize_per_tensor(
    c: Coreai, input: Value, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, result: ValueType
) -> Value:
    "round(x / scale) + zero point, between the limits"
    x = c.cast(input, "f32")
    return _quantized(c, x, _Parameters(c, x, scale, zero_point), result.element_type, quant_min, quant_max)


@formula("lower", f"{_OP}quantize_per_channel", ignored=BY_RESULT, where=_to_integers, examples=[
    example("2x3x4xf32", "3xf32[0.03,0.04]", "3xsi64[-3,3]", 1, -128, 127, "si8"),
    example("2x3xf32", "3xf32[0.03,0.04]", "3xsi32[-3,3]", -1, -32768, 32767, "si16"),
])  # fmt: skip
def quantize_per_channel(
    c: Coreai, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int, quant_max: int,
    result: ValueType,
) -> Value:  # fmt: skip
    "round(x / scale) + zero point with the parameters of each slice of an axis, between the limits"
    x = c.cast(input, "f32")
    return _quantized(c, x, _Parameters(c, x, scales, zero_points, axis), result.element_type, quant_min, quant_max)


@formula(
    "lower", f"{_OP}dequantize_per_tensor", f"{_OP}dequantize_per_tensor.tensor", f"{_OP}dequantize_per_tensor.tensor2",
    ignored=_LIMITS | _TYPES, examples=[
        example("2x3xsi8[-128,127]", 0.03125, 3, -128, 127, "si8"), example("2x3xui8[0,255]", 0.1, 128, 0, 255, "ui8"),
        example("2x3xsi32[-999,999]", 0.03125, 3, -(2**31), 2**31 - 1, "si32"),
        example("si8[-128,127]", 0.1, -4, -128, 127, "si8"),
        example("2x3xsi8[-128,127]", 0.03125, 3, -128, 127, "si8", out_dtype="f16"),
        example(
            "2x3xsi8", "1xf32[0.03,0.04]", "1xsi64[-3,3]", -128, 127, "si8", op=f"{_OP}dequantize_per_tensor.tensor"
        ),
    ],
)  # fmt: skip
def dequantize_per_tensor(c: Coreai, input: Value, scale: Any, zero_point: Any, result: ValueType) -> Value:
    "(x - zero point) * scale"
    return _dequantized(c, _Parameters(c, input, scale, zero_point), result.element_type, "f32")


@formula("lower", f"{_OP}dequantize_per_channel", ignored=_LIMITS | _TYPES, examples=[
    example("2x3x4xsi8[-128,127]", "3xf32[0.03,0.04]", "3xsi64[-3,3]", 1, -128, 127, "si8"),
    example("2x3xui8", "3xf32[0.03,0.04]", None, -1, 0, 255, "ui8"),
    example("3x2xsi32", "3xf32[0.03,0.04]", "3xsi64[-3,3]", 0, -(2**31), 2**31 - 1, "si32"),
])  # fmt: skip
def dequantize_per_channel(
    c: Coreai, input: Value, scales: Value, zero_points: Value | None, axis: int, result: ValueType
) -> Value:
    "(x - zero point) * scale with the parameters of each slice of an axis"
    return _dequantized(c, _Parameters(c, input, scales, zero_points, axis), result.element_type, "si32")


@lowering(f"{_OP}dequantize_per_channel_group", examples=[
    example("3x8xsi8[-8,7]", "3x2xf32[0.03,0.04]", "3x2xsi32[-3,3]", -8, 7, "si8", 4, "f32"),
    example("3x8xsi8[-8,7]", "3x2xf32[0.03,0.04]", None, -8, 7, "si8", 4, "f32"),
])  # fmt: skip
def dequantize_per_channel_group(op: OpView, c: Coreai) -> Value:
    "(x - zero point) * scale with the parameters of each group in a row; the shape of the scales gives the groups"
    op.ignore("quant_min", "quant_max", because="they only say what the values are between")
    op.ignore("dtype", "output_dtype", because="the types of the input and the result have them")
    op.ignore("group_size", because="the number of scales says it")
    x, scales, element = op.input, op.scales, op.result.element_type
    op.expect(is_float(scales.element_type), "scales that are integers are not supported; cast them to float")
    blocks = [x.static_shape[0], math.prod(scales.static_shape) // x.static_shape[0]]
    known = _known(op.zero_points)
    low, high = _RANGES.get(x.dtype, (0, -1))
    if known is not None and np.all((low <= known) & (known <= high)):
        offset = c.constant(
            np.broadcast_to(known.reshape(blocks if known.size > 1 else [1, 1]), blocks), x.element_type
        )
    else:  # in floats there is room for any zero point
        x, offset = c.cast(x, "f32"), c.constant(np.zeros(blocks), "f32")
        if op.zero_points is not None:
            offset = c.reshape(c.cast(op.zero_points, "f32"), blocks)
    made = c.blockwise_shift_scale(
        x, c.reshape(scales, blocks), offset, c.constant(np.zeros(blocks), scales.element_type)
    )
    return c.cast(made, element)


_RANGE = {"element types": "PyTorch computes the range of half precision in half precision"}


def _bounds(c: Coreai, x: Value) -> tuple[Value, Value]:
    """The range of the values, extended to include 0."""
    x = c.cast(x, "f32")
    least = c.broadcasting_minimum(reduce(c, c.reduce_min, x, None, False), 0.0)
    return least, c.broadcasting_maximum(reduce(c, c.reduce_max, x, None, False), 0.0)


def _as_vectors(c: Coreai, values: Sequence[Value], results: Sequence[ValueType]) -> list[Value]:
    return [c.reshape(c.cast(value, to.element_type), [1]) for value, to in zip(values, results, strict=True)]


@formula(
    "lower", f"{_OP}choose_qparams.tensor", name="choose_qparams", unspecified=_RANGE,
    ignored={"dtype": "the limits say which values there are"}, examples=[
        example("2x3xf32", -128, 127, 2.0**-12, "si8"), example("2x3xf32[-0.00001,0.00001]", 0, 255, 2.0**-12, "ui8"),
        example("2x3xf32[2,3]", -128, 127, 2.0**-12, "si8"),
    ],
)  # fmt: skip
def choose_parameters(
    c: Coreai, input: Value, quant_min: int, quant_max: int, eps: float, results: Sequence[ValueType]
) -> list[Value]:
    "the scale and zero point that map the range of the values, extended to include 0, onto the limits"
    (least, most), low, high = _bounds(c, input), float(quant_min), float(quant_max)
    scale = c.broadcasting_maximum(c.broadcasting_divide(c.broadcasting_sub(most, least), high - low), eps)
    moved = c.broadcasting_sub(low, c.round_(c.broadcasting_divide(least, scale)))
    zero_point = c.broadcasting_minimum(c.broadcasting_maximum(moved, low), high)
    return _as_vectors(c, [scale, zero_point], results)


_ZERO_POINTS = {"ui8": 128}


@formula(
    "lower", f"{_OP}choose_qparams_symmetric.tensor", name="choose_qparams_symmetric", unspecified=_RANGE,
    examples=[example("2x3xf32", -127, 127, 2.0**-12, "si8"), example("2x3xf32", 0, 255, 2.0**-12, "ui8")],
)  # fmt: skip
def choose_symmetric_parameters(
    c: Coreai, input: Value, quant_min: int, quant_max: int, eps: float, dtype: Attribute, results: Sequence[ValueType]
) -> list[Value]:
    "the same of the range that reaches as far below 0 as above; of unsigned integers, 0 lies in the middle"
    least, most = _bounds(c, input)
    width = c.broadcasting_mul(c.broadcasting_maximum(c.broadcasting_mul(least, -1.0), most), 2.0)
    scale = c.broadcasting_maximum(c.broadcasting_divide(width, float(quant_max - quant_min)), eps)
    return _as_vectors(c, [scale, c.constant(_ZERO_POINTS.get(element_name(dtype), 0), "si32")], results)

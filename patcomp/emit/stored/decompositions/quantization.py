"""Decompositions of the ops that quantize, dequantize, and find scales.

Facts: the programs that coreai-core 1.0.0b3 saves for each op and element type, for one scale and one a channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.emit.bytecode import StoredEntry, StoredValue
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.decompositions.body import (
    SI32,
    STORED_BOOL,
    UI32,
    Body,
    decomposes,
    element,
    element_name_of,
    extreme_number,
    stored_dims_of,
    stored_tensor,
)
from patcomp.emit.stored.types import stored_element
from patcomp.ir.types import is_float

_Decomposed = Sequence[StoredValue]
F32 = stored_element("f32")
_ROUND_AND_CLAMP_IN_FLOATS = ("sint8_v1", "uint8_v1")


def _per_channel(
    body: Body, value: StoredValue, axis: StoredValue, parameters: Sequence[StoredValue]
) -> list[StoredValue]:
    """The parameters with their channels along an axis of the value, and 1 elsewhere."""
    rank = len(stored_dims_of(value))
    shape = body.shape(value)
    positions = body.vector(range(rank))
    list_of = lambda element_type: stored_tensor((rank,), element_type)  # noqa: E731
    at_axis = body.composite("broadcasting_equal_v1", [positions, axis], list_of(STORED_BOOL))
    elsewhere = body.primitive("not", [at_axis], list_of(STORED_BOOL))
    masks = [body.cast(at_axis, UI32), body.cast(elsewhere, UI32)]
    ones = body.vector([1] * rank, UI32)
    sizes = body.broadcasting("mul", masks[0], shape, (rank,))
    others = body.broadcasting("mul", masks[1], ones, (rank,))
    wide = body.broadcasting("add", sizes, others, (rank,))
    return [body.reshape(parameter, wide, (OPEN_DIMENSION,) * rank) for parameter in parameters]


@decomposes("quantize_v2")
def quantize(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> _Decomposed:
    """clamp(round((input - offset2) / scale) + offset1), computed in f32."""
    value, scale, offset1, offset2, axis = operands
    dims, target = stored_dims_of(value), element(offset1)
    if stored_dims_of(scale):
        offset1, scale, offset2 = _per_channel(body, value, axis, [offset1, scale, offset2])
    value = body.cast(value, F32)
    value = body.broadcasting("sub", value, body.cast(offset2, F32), dims)
    value = body.broadcasting("divide", value, body.cast(scale, F32), dims)
    if not is_float(element_name_of(target)):
        value = body.primitive("round", [value], stored_tensor(dims, F32))
    value = body.broadcasting("add", value, body.cast(offset1, F32), dims)
    in_floats = target[0] in _ROUND_AND_CLAMP_IN_FLOATS
    limits = [body.scalar(extreme_number(target, largest), F32 if in_floats else target) for largest in (False, True)]
    limits = [body.cast(limit, F32) for limit in limits]
    value = body.broadcasting("maximum", value, limits[0], dims)
    value = body.broadcasting("minimum", value, limits[1], dims)
    return [body.cast(value, target)]


@decomposes("dequantize_v2")
def dequantize(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> _Decomposed:
    """(input - offset1) * scale, computed in f32, + offset2."""
    value, scale, offset1, offset2, axis = operands
    dims = stored_dims_of(value)
    if stored_dims_of(scale):
        offset1, scale, offset2 = _per_channel(body, value, axis, [offset1, scale, offset2])
    value, offset1, scale = body.cast(value, F32), body.cast(offset1, F32), body.cast(scale, F32)
    value = body.broadcasting("sub", value, offset1, dims)
    value = body.broadcasting("mul", value, scale, dims)
    value = body.cast(value, element(offset2))
    return [body.broadcasting("add", value, offset2, dims)]


def _limits(body: Body, bounds: StoredValue) -> tuple[StoredValue, StoredValue]:
    """The first and the second element of the range."""
    zero, one, two = (body.vector([number]) for number in range(3))
    type_ = stored_tensor((1,), element(bounds))
    return (
        body.primitive("slice", [bounds, zero, one, one], type_),
        body.primitive("slice", [bounds, one, two, one], type_),
    )


def _other_axes(body: Body, value: StoredValue, axis: StoredValue) -> StoredValue:
    """All axes of a value but one, as a list."""
    rank = len(stored_dims_of(value))
    zero, one, axes = body.vector([0]), body.vector([1]), body.vector(range(rank))
    some, single = stored_tensor((OPEN_DIMENSION,), SI32), stored_tensor((1,), SI32)
    first = body.primitive("expand_dims", [axis, zero], single)
    before = body.primitive("slice", [axes, zero, first, one], some)
    after_axis = body.primitive("add", [axis, body.scalar(1, SI32)], stored_tensor((), SI32))
    second = body.primitive("expand_dims", [after_axis, zero], single)
    after = body.primitive("slice", [axes, second, body.vector([rank]), one], some)
    return body.primitive("concat", [zero, before, after], some)


def _extremes(body: Body, value: StoredValue, axes: StoredValue) -> tuple[StoredValue, StoredValue]:
    """The smallest and the largest element of each channel."""
    type_ = stored_tensor((OPEN_DIMENSION,) * len(stored_dims_of(value)), element(value))
    return (
        body.composite("reduce_min_v1", [value, axes], type_),
        body.composite("reduce_max_v1", [value, axes], type_),
    )


@decomposes("asymmetric_quantization_statistics_v1")
def asymmetric_statistics(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> _Decomposed:
    """The scale and the zero point with which a range holds the smallest and the largest element, and 0."""
    value, bounds, axis = operands
    low, high = _limits(body, bounds)
    axes = _other_axes(body, value, axis)
    smallest, largest = _extremes(body, value, axes)
    wide, type_ = stored_dims_of(smallest), smallest.type
    zero = body.scalar(0, element(value))
    zeros = body.broadcast_to(zero, body.shape_at_run_time(smallest), wide)
    smallest = body.primitive("minimum", [smallest, zeros], type_)
    largest = body.primitive("maximum", [largest, zeros], type_)
    distance = body.primitive("sub", [largest, smallest], type_)
    steps = body.cast(body.primitive("sub", [high, low], low.type), element(value))
    scale = body.broadcasting("divide", distance, steps, wide)
    shift = body.primitive("divide", [smallest, scale], type_)
    if not is_float(element_name_of(element(bounds))):
        shift = body.primitive("round", [shift], type_)
    low, high = body.cast(low, element(value)), body.cast(high, element(value))
    point = body.broadcasting("sub", low, shift, wide)
    point = body.broadcasting("minimum", point, high, wide)
    point = body.broadcasting("maximum", point, low, wide)
    point = body.cast(point, element(bounds))
    return [
        body.primitive("shrink_dims", [each, axes], stored_tensor((OPEN_DIMENSION,), element(each)))
        for each in (scale, point)
    ]


@decomposes("symmetric_quantization_statistics_v1")
def symmetric_statistics(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> _Decomposed:
    """The scale with which a range holds the element of the largest magnitude."""
    value, bounds, axis = operands
    low, high = _limits(body, bounds)
    axes = _other_axes(body, value, axis)
    smallest, largest = _extremes(body, value, axes)
    type_ = smallest.type
    magnitudes = [body.primitive("abs", [each], type_) for each in (smallest, largest)]
    largest = body.primitive("maximum", magnitudes, type_)
    steps = body.cast(body.primitive("sub", [high, low], low.type), element(value))
    twice = body.broadcasting("mul", largest, body.small_integer(2, element(value)), stored_dims_of(largest))
    scale = body.broadcasting("divide", twice, steps, stored_dims_of(largest))
    return [body.primitive("shrink_dims", [scale, axes], stored_tensor((OPEN_DIMENSION,), element(scale)))]

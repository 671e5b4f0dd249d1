"""Combine values at positions that may repeat; every scatter and accumulation uses this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.types import BIT_WIDTHS, Shape, element_name, element_type, is_float, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Rejected
from patterns_catalog.lower.casts import convert
from patterns_catalog.lower.integer_sums import digits, from_digits, room
from patterns_catalog.lower.shapes import as_vector
from patterns_catalog.sizes import END, Size, as_index, size_of, sizes_of
from patterns_catalog.slices import slice_axis

_Mode = Literal["update", "add", "mul", "max", "min"]
_MODES: dict[str, _Mode] = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def filled(c: Coreai, value: float, sizes: Sequence[Size], element: Any) -> Value:
    """A tensor of one number."""
    scalar = c.constant(value, element)
    return c.broadcast_to(scalar, list(sizes)) if sizes else scalar


def combine(
    c: Coreai, x: Value, axis: int, index: Value, source: Value, how: str = "update", *, include_self: bool = True
) -> Value:
    """`x` with each element of `source` combined into the place that `index` gives it along an axis.

    As `torch.scatter_reduce`: the index has the shape of the part of the source that counts, and may be smaller
    than `x` outside of the axis. `how` is `update` (the last of several stays), `sum`, `prod`, `mean`, `amax` or
    `amin`; without `include_self` the old values do not count where new ones arrive. The axis may count from the end.
    """
    axis %= max(x.rank, 1)
    if x.rank == 0 or index.rank == 0 or source.rank == 0:  # PyTorch takes 0-d tensors as those of one element
        vectors = [as_vector(c, value) for value in (x, index, source)]
        result = combine(c, vectors[0], 0, vectors[1], vectors[2], how, include_self=include_self)
        return result if x.rank else c.reshape(result, [])
    if 0 in index.shape:
        return x
    sizes = sizes_of(c, index)
    index, source = as_index(c, index), _corner(c, source, sizes, index.shape)
    shape = tuple(size if at == axis else index.shape[at] for at, size in enumerate(x.shape))
    window = [END if at == axis else size for at, size in enumerate(sizes)]
    window = list(shape) if None not in shape else window  # type: ignore[arg-type]
    part = _combined(c, _Places(_corner(c, x, window, shape), index, axis), source, how, include_self)
    if window == list(x.shape):
        return part
    return c.slice_update(x, [0] * x.rank, window, [1] * x.rank, part)


def _corner(c: Coreai, x: Value, sizes: Sequence[Size], shape: Shape) -> Value:
    """The first elements of each axis. The types do not show whether two dynamic sizes are equal."""
    if list(x.shape) == list(sizes):
        return x
    return c.slice_(x, [0] * x.rank, list(sizes), [1] * x.rank, result_type=tensor(shape, x.element_type))


class _Places(NamedTuple):
    """A tensor, and the positions `at` along one axis where values arrive; `at` is aligned with it along the others."""

    x: Value
    at: Value
    axis: int

    def scatter(self, c: Coreai, onto: Value, source: Value, mode: _Mode) -> Value:
        return c.scatter_along_axis(onto, self.at, source, self.axis, scatter_mode=mode)

    def marked(self, c: Coreai, marks: Value) -> Value:
        """Where one of the arriving bools is true."""
        none = filled(c, 0, sizes_of(c, self.x), "si32")
        return c.broadcasting_greater(self.scatter(c, none, c.cast(marks, "si32"), "max"), 0)

    def counted(self, c: Coreai, start: int) -> Value:
        """The number of values that arrive, plus `start`."""
        ones = filled(c, 1, sizes_of(c, self.at), "si32")
        return self.scatter(c, filled(c, start, sizes_of(c, self.x), "si32"), ones, "add")


def _combined(c: Coreai, places: _Places, source: Value, how: str, include_self: bool) -> Value:
    x = places.x
    if how == "update":
        return places.scatter(c, x, source, "update")
    if not include_self:
        arrived = places.marked(c, filled(c, True, sizes_of(c, source), "i1"))
        neutral = c.constant(_neutral(x.element_type, how), x.element_type)
        places = places._replace(x=c.broadcasting_where(arrived, neutral, x))
    if how == "mean":
        count = c.broadcasting_maximum(places.counted(c, int(include_self)), 1)
        return _quotient(c, _combined(c, places, source, "sum", True), count)
    if is_float(x.element_type):
        combined = places.scatter(c, places.x, source, _MODES[how])
        if how in ("amax", "amin"):  # the runtime's maximum passes over NaN
            unordered = places.marked(c, c.broadcasting_not_equal(source, source))
            combined = c.broadcasting_where(unordered, c.constant(np.nan, x.element_type), combined)
        return combined
    if x.dtype == "i1":  # bools add as `or` and multiply as `and`
        how = {"sum": "amax", "prod": "amin"}.get(how, how)
    wide = _wide(x)
    places, source = places._replace(x=convert(c, places.x, wide)), convert(c, source, wide)
    if how in ("amax", "amin"):
        return convert(c, places.scatter(c, places.x, source, _MODES[how]), x.element_type)
    return convert(c, (_wrapping_sum if how == "sum" else _wrapping_product)(c, places, source), x.element_type)


def _neutral(element: Attribute, how: str) -> float:
    """The number that leaves any value as it is when both are combined."""
    if how in ("sum", "mean", "prod"):
        return int(how == "prod")
    if is_float(element):
        return -np.inf if how == "amax" else np.inf
    if element_name(element) == "i1":
        return how == "amin"
    limits = np.iinfo(numpy_dtype(element))
    return int(limits.min if how == "amax" else limits.max)


def _wide(x: Value) -> Attribute:
    """The integer type, of at least 32 bits, in which the elements of a tensor are combined."""
    if x.dtype == "ui64":
        raise Rejected("scatters that add or multiply ui64 elements are not supported")
    return element_type("si64" if BIT_WIDTHS[x.dtype] == 64 else "si32")


def _quotient(c: Coreai, x: Value, count: Value) -> Value:
    """PyTorch rounds the means of integers down."""
    if is_float(x.element_type):
        return c.broadcasting_divide(x, c.cast(count, x.element_type))
    quotient = c.broadcasting_floor_divide(convert(c, x, _wide(x)), convert(c, count, _wide(x)))
    return convert(c, quotient, x.element_type)


def _wrapping_sum(c: Coreai, places: _Places, source: Value) -> Value:
    """Sums of integers that wrap, as PyTorch's do; the runtime aborts where its own sums overflow.

    Upper and lower halves are summed apart, of so many values at a time that neither sum overflows.
    """
    total = places.x
    count, axis = source.shape[places.axis], places.axis
    half = 1 << BIT_WIDTHS[total.dtype] // 2
    none = filled(c, 0, sizes_of(c, total), total.element_type)
    if count is None:
        bits = room(total, None)
        sums = [places.scatter(c, none, digit, "add") for digit in digits(c, source, BIT_WIDTHS[total.dtype], bits)]
        return c.broadcasting_add(total, from_digits(c, sums, bits))
    for start in range(0, count, half // 2 - 1):
        end = min(count, start + half // 2 - 1)
        part = places._replace(at=slice_axis(c, places.at, axis, start, end))
        values = slice_axis(c, source, axis, start, end)
        low = part.scatter(c, none, c.broadcasting_bitwise_and(values, half - 1), "add")
        high = part.scatter(c, none, c.broadcasting_floor_divide(values, half), "add")
        total = c.broadcasting_add(total, c.broadcasting_add(low, c.broadcasting_mul(high, half)))
    return total


def _wrapping_product(c: Coreai, places: _Places, source: Value) -> Value:
    """Products of integers that wrap: one step along the axis at a time, in which no place repeats."""
    axis = places.axis
    order = [axis, *(other for other in range(source.rank) if other != axis)]
    x, index, source = (c.transpose(value, order) for value in (places.x, places.at, source))

    def body(step: Value, product: Value) -> list[Value]:
        here, factor = (c.gather_nd(value, c.reshape(step, [1, 1])) for value in (index, source))
        grown = c.broadcasting_mul(c.gather_along_axis(product, here, 0), factor)
        return [c.broadcasting_add(step, 1), c.scatter_along_axis(product, here, grown, 0, scatter_mode="update")]

    size = size_of(c, index, 0)
    count = c.constant(size) if isinstance(size, int) else size
    _, product = c.while_([c.constant(0), x], lambda step, _: c.broadcasting_greater(count, step), body)
    return c.transpose(product, np.argsort(order).tolist())

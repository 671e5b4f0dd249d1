"""Sums of integers, which wrap in PyTorch; the runtime's matrix products and scans abort when they overflow.

So numbers are split into digits, whose sums cannot overflow.
"""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, is_float
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Rejected
from patterns_catalog.lower.casts import wrap
from patterns_catalog.slices import slice_axis

_TERMS = 1 << 15
"""How many products of two digits can be summed: digits have 8 bits in 32, or 24 bits in 64."""

_LONGEST = 1 << 23
"""The assumed maximum of a dynamic dimension."""


def integer_product(c: Coreai, x: Value, y: Value) -> Value:
    """`x @ y` of integers modulo 2 ** width; digits whose places are together beyond the width need no product.

    Raises:
        Rejected: the number of terms is known only at run time.
    """
    terms, width = x.shape[-1], BIT_WIDTHS[x.dtype]
    if terms is None:
        raise Rejected("a product of integer matrices needs a static inner dimension; export with that dimension fixed")
    if terms > _TERMS:
        parts = [(0, _TERMS), (_TERMS, terms)]
        first, rest = (
            integer_product(c, slice_axis(c, x, x.rank - 1, *part), slice_axis(c, y, y.rank - 2, *part))
            for part in parts
        )
        return c.broadcasting_add(first, rest)
    bits = 24 if width == 64 else 8
    left, right = (digits(c, _at_least_32_bits(c, factor), width, bits) for factor in (x, y))
    sums = []
    for place in range(len(left)):
        products = [c.broadcasting_batch_matmul(left[index], right[place - index]) for index in range(place + 1)]
        sums.append(_total(c, products))
    return wrap(c, from_digits(c, sums, bits), x.dtype)


def running_sum(c: Coreai, x: Value, dim: int, given: Attribute) -> Value:
    """The sums of the elements so far along a dimension, modulo 2 ** width. Numbers that were integers of the element
    type `given` before have no more bits than these."""
    if x.shape[dim] == 1:
        return x
    width = BIT_WIDTHS[x.dtype] if is_float(given) else min(BIT_WIDTHS[x.dtype], BIT_WIDTHS[element_name(given)])
    wide = _at_least_32_bits(c, x)
    bits = room(wide, x.shape[dim])
    sums = [c.scan(digit, dim, False, scan_op="sum") for digit in digits(c, wide, width, bits)]
    return wrap(c, from_digits(c, sums, bits), x.dtype)


def room(x: Value, terms: int | None) -> int:
    """The number of bits that digits may have of which so many are added; None is a number known only at run time."""
    return BIT_WIDTHS[x.dtype] - 1 - ((_LONGEST if terms is None else terms) - 1).bit_length()


def digits(c: Coreai, x: Value, width: int, bits: int) -> list[Value]:
    """The lowest `width` bits of integers in digits of `bits` bits, the lowest first; the last one has the sign."""
    shifted = [
        c.broadcasting_floor_divide(x, c.constant(1 << place, x.element_type)) if place else x
        for place in range(0, width, bits)
    ]
    mask = c.constant((1 << bits) - 1, x.element_type)
    return [*(c.broadcasting_bitwise_and(part, mask) for part in shifted[:-1]), shifted[-1]]


def from_digits(c: Coreai, parts: list[Value], bits: int) -> Value:
    """The number of digits that may exceed their place."""
    ones = [c.constant(1 << (place * bits), parts[0].element_type) for place in range(1, len(parts))]
    return _total(c, [parts[0], *map(c.broadcasting_mul, parts[1:], ones)])


def _total(c: Coreai, parts: list[Value]) -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = c.broadcasting_add(total, part)
    return total


def _at_least_32_bits(c: Coreai, x: Value) -> Value:
    return c.cast(x, "si32") if BIT_WIDTHS[x.dtype] < 32 else x

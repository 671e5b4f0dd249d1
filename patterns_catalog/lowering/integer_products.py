"""Matrix products of integers, which wrap in PyTorch; the runtime's abort the process when a sum overflows."""

from __future__ import annotations

from typing import Any

from patcomp.ir.types import BIT_WIDTHS
from patcomp.ir.value import Value
from patcomp.patterns import Rejected
from patterns_catalog.lowering.casts import wrap
from patterns_catalog.lowering.shapes import slice_axis

_TERMS = 1 << 15
"""So many products of two digits have a sum that fits: digits have 8 bits in 32, or 24 bits in 64."""


def integer_product(c: Any, x: Value, y: Value) -> Value:
    """`x @ y` of integers modulo 2 ** width.

    Both are taken apart into digits, whose products cannot overflow; where two places together are beyond the width,
    the product of their digits does not count.

    Raises:
        Rejected: the number of terms is known only at run time.
    """
    terms, width = x.shape[-1], BIT_WIDTHS[x.dtype]
    if terms is None:
        raise Rejected("a product of integer matrices over a dynamic dimension")
    if terms > _TERMS:
        parts = [(0, _TERMS), (_TERMS, terms)]
        first, rest = (
            integer_product(c, slice_axis(c, x, x.rank - 1, *part), slice_axis(c, y, y.rank - 2, *part))
            for part in parts
        )
        return c.broadcasting_add(first, rest)
    if width < 32:
        return wrap(c, _by_digits(c, c.cast(x, "si32"), c.cast(y, "si32"), width, 8), x.dtype)
    return _by_digits(c, x, y, width, 8 if width == 32 else 24)


def _by_digits(c: Any, x: Value, y: Value, width: int, bits: int) -> Value:
    total = None
    places = range(0, width, bits)
    left, right = ([_digit(c, factor, place, bits, place == places[-1]) for place in places] for factor in (x, y))
    for place in range(len(places)):
        for index in range(place + 1):
            product = c.broadcasting_batch_matmul(left[index], right[place - index])
            if place:
                product = c.broadcasting_mul(product, c.constant(1 << places[place], x.element_type))
            total = product if total is None else c.broadcasting_add(total, product)
    assert total is not None
    return total


def _digit(c: Any, x: Value, place: int, bits: int, is_last: bool) -> Value:
    """The bits from a place on; the last digit has all that are left, and the sign."""
    shifted = c.broadcasting_floor_divide(x, c.constant(1 << place, x.element_type)) if place else x
    return shifted if is_last else c.broadcasting_bitwise_and(shifted, c.constant((1 << bits) - 1, x.element_type))

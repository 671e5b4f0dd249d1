"""The bytes of element types that numpy lacks: integers below 8 bits, and floats of 4, 8 and 16 bits.

In a dense attribute, an element below 8 bits takes a byte. In a weight, elements are one little-endian stream of bits:
element k has the bits k*n to k*n + n - 1, whatever the shape is. `i1` takes a byte in both.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patcomp.ir.mapped import mapped
from patcomp.ir.types import BIT_WIDTHS, ML_DTYPES, integer_range

_BLOCK = 1 << 16
"""Elements that are packed at a time; a multiple of 8, so that a block ends at a byte."""


def is_packed(element: str) -> bool:
    """Whether several elements share a byte of a weight."""
    return BIT_WIDTHS[element] < 8 and element != "i1"


def pack(stored: np.ndarray, element: str) -> np.ndarray:
    """The bytes of a weight whose elements have a byte each, as in a dense attribute."""
    bits, flat = BIT_WIDTHS[element], np.ascontiguousarray(stored).reshape(-1).view(np.uint8)
    packed = mapped(((flat.size * bits + 7) // 8,), np.dtype(np.uint8))
    for start in range(0, flat.size, _BLOCK):
        made = _packed(flat[start : start + _BLOCK], bits)
        packed[start * bits // 8 :][: made.size] = made
    return packed


def _packed(block: np.ndarray, bits: int) -> np.ndarray:
    if 8 % bits:
        stream = np.unpackbits(block[:, None], axis=1, count=bits, bitorder="little")
        return np.packbits(stream.reshape(-1), bitorder="little")
    each = 8 // bits  # elements of a byte, which shifts move faster
    elements = np.pad(block & np.uint8((1 << bits) - 1), (0, -block.size % each))
    made = elements[::each].copy()
    for place in range(1, each):
        made |= elements[place::each] << np.uint8(bits * place)
    return made


def unpack(packed: np.ndarray, element: str, count: int) -> np.ndarray:
    """The inverse of `pack`: a byte for each of `count` elements."""
    bits, stored = BIT_WIDTHS[element], np.empty(count, dtype=np.uint8)
    for start in range(0, count, _BLOCK):
        block = stored[start : start + _BLOCK]
        block[:] = _unpacked(packed[start * bits // 8 :], bits, block.size)
    return sign_extended(stored, element)


def _unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    if 8 % bits:
        stream = np.unpackbits(packed, count=count * bits, bitorder="little")
        return np.packbits(stream.reshape(count, bits), axis=1, bitorder="little")[:, 0]
    each = 8 // bits
    made = np.empty(-(-count // each) * each, np.uint8)
    for place in range(each):
        made[place::each] = packed[: made.size // each] >> np.uint8(bits * place)
    return made[:count]


def sign_extended(stored: np.ndarray, element: str) -> np.ndarray:
    """One byte for each element, whose low bits are the element; signed integers are extended to the byte."""
    spare = 8 - BIT_WIDTHS[element]
    if element.startswith("si"):
        return ((stored << spare).view(np.int8) >> spare).view(np.uint8)
    return stored & (0xFF >> spare)


def numbers(stored: np.ndarray, element: str) -> np.ndarray:
    """The numbers of stored elements of a type that numpy lacks: floats as float32, integers as int8 or uint8."""
    if element in ML_DTYPES:
        return stored.view(ML_DTYPES[element]).astype(np.float32)
    return stored.view(np.int8) if element.startswith("si") else stored


def stored(source: np.ndarray, element: str) -> np.ndarray:
    """The stored elements of numbers, for a type that numpy lacks: `uint16` for bf16, otherwise a byte each.

    Raises:
        TypeError: an integer type gets a number that is not whole, or a type without a sign a negative number.
        OverflowError: an integer does not fit, or a float that is too large has no infinity in the type.
    """
    if element not in ML_DTYPES:
        check_integers(source, element)
        return source.astype(np.int8 if element.startswith("si") else np.uint8)
    dtype = ML_DTYPES[element]
    if source.dtype == dtype:
        return source.view(f"uint{8 * dtype.itemsize}")
    with np.errstate(over="ignore"):
        # bf16 is rounded from f32, as the toolchain does it
        floats = source.astype(np.float32 if element == "bf16" else np.float64)
        if element == "bf16":
            floats = np.where(np.isnan(floats), np.float32(np.nan), floats)  # one NaN, without a sign
        elif element == "f8E8M0FNU":
            if np.any(np.less(floats, 0)):
                raise TypeError(f"a negative number is no element of type {element}, which has no sign")
            floats = np.maximum(floats, 2.0**-127)  # it has no zero either, and the toolchain takes the smallest number
        made = floats.astype(dtype)
    if element == "f8E4M3FN":  # NaN stands for infinity
        lost = np.isnan(made) & ~np.isnan(floats)
    else:
        lost = ~(np.abs(floats) <= 6) if element == "f4E2M1FN" else np.zeros((), dtype=np.bool_)
    if np.any(lost):
        raise OverflowError(f"{_shown(source)} does not fit element type {element}")
    return made.view(f"uint{8 * dtype.itemsize}")


def check_integers(source: np.ndarray, element: str) -> None:
    """Check that all numbers are integers of an element type.

    Raises:
        TypeError: one is not whole.
        OverflowError: one is outside of the range.
    """
    if not source.size:
        return
    if source.dtype.kind not in "biuO" and not np.all(source == np.trunc(source)):
        raise TypeError(f"{_shown(source)} is not an integer, as element type {element} needs")
    low, high = integer_range(element)
    # compare as Python numbers, because comparing numpy's small floats causes warnings
    if any(not low <= limit <= high for limit in _limits(source)):
        raise OverflowError(f"{_shown(source)} does not fit element type {element} ({low}..{high})")


def _limits(source: np.ndarray) -> Iterator[float]:
    yield np.asarray(source.min()).item()
    yield np.asarray(source.max()).item()


def _shown(source: np.ndarray) -> str:
    return np.array2string(source, threshold=8)

"""The numbers in `dense<...>`: every bit pattern is printed so that our parser and the toolchain's read it back.

In storage, an element of `i1` (0 or 1) or a sub-byte type (sign-extended) takes a byte; other types are in
little-endian C order; equal elements are stored once. In text a constant is a nested list (`true`/`false` for
`i1`), or a hexadecimal string above 100 elements, where `i1` is bit-packed. xDSL's own printer and parser lose NaN
payloads, read infinities as integers, write `i1` strings that the toolchain refuses, and expand splats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from patcomp.ir.constants import dense
from patcomp.ir.types import BIT_WIDTHS, ML_DTYPES, element_name, integer_range, static_shape
from patcomp.ir.xdsl import DenseIntOrFPElementsAttr, TensorType

HEXADECIMAL_FROM = 101
"""A constant with at least this many elements that is no splat prints as a hexadecimal string."""


@dataclass(frozen=True)
class LiteralNumber:
    """One number of a literal as it was written."""

    value: bool | int | float
    is_hexadecimal: bool = False


Literal = LiteralNumber | tuple[LiteralNumber, LiteralNumber]
"""A number, or the parts of a complex one."""


def _width(name: str) -> int:
    """Bits of a number of an element type; a complex element is two numbers."""
    return BIT_WIDTHS[name] // 2 if name.startswith("complex") else BIT_WIDTHS[name]


def _part(name: str) -> str:
    return name[len("complex<") : -1] if name.startswith("complex") else name


def _storage_dtype(name: str) -> np.dtype:
    return np.dtype(f"uint{max(8, _width(name))}")


# ---- printing -------------------------------------------------------------------------------------


def dense_text(attribute: DenseIntOrFPElementsAttr) -> str:
    """The text of a dense attribute without its type: `dense<[1, 2]>`."""
    name = element_name(attribute.type.element_type)
    if name not in BIT_WIDTHS:
        raise ValueError(f"a constant cannot have the element type {name}")
    raw = np.frombuffer(attribute.data.data, dtype=_storage_dtype(name))
    elements = raw.reshape(-1, 2) if name.startswith("complex") else raw
    shape = static_shape(attribute.type)
    if 0 in shape:
        return "dense<>"
    if len(elements) == 1 or (elements == elements[0]).all():
        return f"dense<{_element_text(elements[0], name)}>"
    if len(elements) >= HEXADECIMAL_FROM:
        return f'dense<"0x{_hexadecimal(raw, name)}">'
    texts = iter([_element_text(element, name) for element in elements])
    return f"dense<{_nested(shape, texts)}>"


def _hexadecimal(raw: np.ndarray, name: str) -> str:
    if name == "i1":
        return np.packbits(raw != 0, bitorder="little").tobytes().hex().upper()
    if _width(name) < 8:
        raw = raw & ((1 << _width(name)) - 1)
    return raw.tobytes().hex().upper()


def _nested(shape: Sequence[int], texts: Iterator[str]) -> str:
    if not shape:
        return next(texts)
    return "[" + ", ".join(_nested(shape[1:], texts) for _ in range(shape[0])) + "]"


def _element_text(element: np.ndarray, name: str) -> str:
    if name.startswith("complex"):
        return f"({float_text(int(element[0]), _part(name))},{float_text(int(element[1]), _part(name))})"
    bits = int(element)
    if name == "i1":
        return "true" if bits else "false"
    if name[0] in "fb":
        return float_text(bits, name)
    bits &= (1 << _width(name)) - 1
    return str(bits - (1 << _width(name)) if name[0] == "s" and bits >> (_width(name) - 1) else bits)


def float_text(bits: int, name: str) -> str:
    """The text of a float's bit pattern: decimal if it reads back to the same bits, otherwise hexadecimal bits."""
    value = _float_value(bits, name)
    if math.isfinite(value):
        for text in (f"{value:.6e}", repr(value)):
            if _float_bits(float(text), name) == bits:
                mantissa, exponent, power = text.partition("e")
                return mantissa + ("" if "." in mantissa else ".0") + exponent + power
    return f"0x{bits:0{(_width(name) + 3) // 4}X}"


def _float_dtype(name: str) -> np.dtype:
    return ML_DTYPES.get(name) or np.dtype(f"float{_width(name)}")


def _float_value(bits: int, name: str) -> float:
    return float(np.array(bits, dtype=_storage_dtype(name)).view(_float_dtype(name)))


def _float_bits(value: float, name: str) -> int:
    if name == "f8E8M0FNU":
        if value < 0:
            raise ValueError(f"{value} is no element of type {name}, which has no sign")
        value = max(value, 2.0**-127)  # it has no zero either, and the toolchain takes the smallest number
    with np.errstate(over="ignore"):
        # bf16 is rounded from f32, as the toolchain does it
        source = np.array(value, dtype=np.float32 if name == "bf16" else np.float64)
        return int(source.astype(_float_dtype(name)).view(_storage_dtype(name)))


# ---- parsing --------------------------------------------------------------------------------------


def dense_of_literals(values: Sequence[Literal], type_: TensorType) -> DenseIntOrFPElementsAttr:
    """The attribute of the numbers of a literal; a single number is a splat.

    Raises:
        ValueError: a number does not fit the element type, or the number of values is wrong.
    """
    name = element_name(type_.element_type)
    if name not in BIT_WIDTHS:
        raise ValueError(f"a constant cannot have the element type {name}")
    bits: list[int] = []
    for value in values:
        if isinstance(value, tuple) != name.startswith("complex"):
            raise ValueError(f"{value} is no element of type {name}")
        for number in value if isinstance(value, tuple) else (value,):
            bits.append(_bits_of(number, _part(name)))
    return _dense(np.array(bits, dtype=_storage_dtype(name)), name, type_)


def dense_of_hexadecimal(text: str, type_: TensorType) -> DenseIntOrFPElementsAttr:
    """The attribute of a hexadecimal string `0x...`, which has every element or, for a splat, one.

    Raises:
        ValueError: the string is not hexadecimal, or its length is wrong.
    """
    name = element_name(type_.element_type)
    if name not in BIT_WIDTHS or text[:2] not in ("0x", "0X"):
        raise ValueError(f"{text[:20]!r} is no hexadecimal constant of element type {name}")
    data = bytes.fromhex(text[2:])
    if name == "i1":
        raw = _unpacked_bools(data, math.prod(static_shape(type_)))
    else:
        raw = np.frombuffer(data, dtype=_storage_dtype(name))
        if _width(name) < 8:
            raw = raw & ((1 << _width(name)) - 1)
            if name[0] == "s":
                raw = raw.view(f"int{_width(name)}").astype(np.int8).view(np.uint8)
    return _dense(raw, name, type_)


def _unpacked_bools(data: bytes, count: int) -> np.ndarray:
    if data in (b"\xff", b"\x00") and count != 8:
        return np.array([data[0] & 1], dtype=np.uint8)
    if len(data) != (count + 7) // 8:
        raise ValueError(f"{len(data)} bytes are not the bits of {count} elements")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count, bitorder="little")


def _bits_of(number: LiteralNumber, name: str) -> int:
    value, width = number.value, _width(name)
    if name[0] in "fb":
        if number.is_hexadecimal:
            bits = int(value)
            if not 0 <= bits < 1 << width:
                raise ValueError(f"{bits:#x} has more bits than {name}")
            return bits
        return _float_bits(float(value), name)
    if isinstance(value, float):
        raise ValueError(f"{value} is no element of type {name}")
    if name == "i1":
        if value not in (0, 1):
            raise ValueError(f"{value} is no element of type i1")
        return int(value)
    if isinstance(value, bool):
        raise ValueError(f"{value} is no element of type {name}")
    low, high = integer_range(name)
    if not low <= value <= high:
        raise ValueError(f"{value} does not fit element type {name} ({low}..{high})")
    return value & ((1 << max(8, width)) - 1)


def _dense(raw: np.ndarray, name: str, type_: TensorType) -> DenseIntOrFPElementsAttr:
    count = math.prod(static_shape(type_))
    if name.startswith("complex"):
        raw = raw.view(np.dtype(f"complex{BIT_WIDTHS[name]}"))
    if len(raw) not in (1, count) or (len(raw) == 1 and count == 0):
        raise ValueError(f"the constant has {len(raw)} values, but {type_} has {count} elements")
    return dense(raw, type_)

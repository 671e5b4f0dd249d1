"""Python numbers as PyTorch puts them into tensors."""

from __future__ import annotations

import math

import numpy as np

from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.types import BIT_WIDTHS, element_name, is_float, is_integer
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns.conditions import condition

_SMALLEST_NORMAL = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}
_LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "f32": float(np.finfo(np.float32).max)}


def number_in(value: bool | int | float, element: Attribute) -> bool | int | float:
    """The number that a tensor of an element type gets when it is filled with `value`.

    Anything but zero is true; floats are cut toward zero in integers; integers wrap in 8 and 16 bits. A number that
    does not fit 32 bits stays, because the type may stand for a 64-bit one, which does not wrap there.

    Raises:
        OverflowError: an infinity or NaN among integers.
    """
    name = element_name(element)
    if name == "i1":
        return bool(value)
    if not is_integer(element):
        return float(value) if is_float(element) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise OverflowError(f"{value} has no integer value")
    whole, bits = int(value), BIT_WIDTHS[name]
    if bits >= 32:
        return whole
    whole &= (1 << bits) - 1
    return whole - (1 << bits) if name[0] == "s" and whole >> (bits - 1) else whole


def exact_fill(value: bool | int | float, element: Attribute) -> bool | int | float:
    """As `number_in`, for a type that may stand for a 64-bit one.

    Raises:
        OverflowError: a finite number would become an infinity.
    """
    largest = _LARGEST.get(element_name(element))
    if largest is not None and math.isfinite(value) and abs(value) > largest:
        raise OverflowError(f"{value} does not fit element type {element_name(element)}")
    return number_in(value, element)


def is_normal_in(value: bool | int | float, element: Attribute) -> bool:
    """Whether a float type holds a number with its full precision: no overflow, no underflow, no subnormal."""
    name = element_name(element)
    if name not in _LARGEST or value == 0 or not math.isfinite(value):
        return True
    return _SMALLEST_NORMAL[name] <= abs(value) <= _LARGEST[name]


def known_numbers(x: Value) -> np.ndarray | None:
    """The elements of a constant, also of one whose bytes PyTorch owns; None of a value that is computed."""
    return constant_values(x.ssa, Builder.current().blobs)


@condition("the numbers of {x} are known")
def is_known(x: Value) -> bool:
    return known_numbers(x) is not None

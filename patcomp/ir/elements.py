"""Element types beside numpy: dtypes, and Python or numpy values as arrays in storage form."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from patcomp.ir import packing
from patcomp.ir.types import (
    ML_DTYPES,
    element_name,
    element_type,
)
from patcomp.ir.xdsl import (
    Attribute,
)

_NUMPY: dict[str, Any] = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i1": np.bool_, "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    **{f"si{w}": np.dtype(f"int{w}").type for w in (8, 16, 32, 64)},
    **{f"ui{w}": np.dtype(f"uint{w}").type for w in (8, 16, 32, 64)},
}  # fmt: skip
_ELEMENT_OF_NUMPY = {np.dtype(dtype): name for name, dtype in _NUMPY.items()}


_ELEMENT_OF_NUMPY |= {dtype: name for name, dtype in ML_DTYPES.items()}
_ELEMENT_OF_NUMPY |= {
    np.dtype(getattr(ml_dtypes, f"{kind}int{width}")): f"{sign}i{width}"
    for kind, sign in (("", "s"), ("u", "u")) for width in (2, 4)
}  # fmt: skip


def numpy_dtype(element: Attribute | str) -> np.dtype | None:
    """The numpy dtype of an element type; None for bf16, f8, f4 and sub-byte integers, which numpy lacks."""
    name = element if isinstance(element, str) else element_name(element)
    return np.dtype(_NUMPY[name]) if name in _NUMPY else None


def element_of_numpy(dtype: np.dtype) -> Attribute:
    """The element type of a numpy dtype.

    Raises:
        TypeError: the dialect has no such element type.
    """
    try:
        return element_type(_ELEMENT_OF_NUMPY[np.dtype(dtype)])
    except KeyError:
        raise TypeError(f"numpy dtype {dtype} has no Core AI element type") from None


def to_numpy(value: object, element: Attribute | str | None = None) -> tuple[np.ndarray, Attribute]:
    """A Python or numpy value as an array of an element type, in storage form.

    Elements of types that numpy lacks are their bits: bf16 as uint16, floats of 8 and 4 bits as uint8, integers below 8
    bits as int8 or uint8. The array is read-only where the value is a Python number.

    Raises:
        OverflowError: a number does not fit the element type (never wrapped).
        TypeError: the value is not a number or a regular list of numbers, or the element type cannot hold it.
    """
    if type(value) in (bool, int, float):
        return _number(repr(value), element)  # as text, because 0.0 == -0.0 and 1 == True
    return _to_numpy(value, element)


@lru_cache(maxsize=4096)
def _number(text: str, element: Attribute | str | None) -> tuple[np.ndarray, Attribute]:
    number = text == "True" if text in ("True", "False") else int(text) if text.lstrip("-").isdigit() else float(text)
    array, element = _to_numpy(number, element)
    array.flags.writeable = False
    return array, element


def _to_numpy(value: object, element: Attribute | str | None) -> tuple[np.ndarray, Attribute]:
    source = _array(value)
    if element is None:
        if not isinstance(value, np.ndarray | np.generic):
            if source.dtype == np.float64:
                with np.errstate(over="ignore"):
                    source = source.astype(np.float32)
            elif source.dtype.kind in "iuO":
                return to_numpy(value, "si32")
        element = element_of_numpy(source.dtype)
        if numpy_dtype(element) is not None:
            return source, element
    element = element_type(element)
    name = element_name(element)
    if source.dtype.kind == "c" and not name.startswith("complex"):
        raise TypeError(f"{value!r} is complex, which element type {name} cannot hold")
    dtype = numpy_dtype(element)
    if dtype is None:
        return packing.stored(source, name), element
    if dtype.kind in "iu":
        packing.check_integers(source, name)
    with np.errstate(over="ignore"):
        return source.astype(dtype), element


def _array(value: object) -> np.ndarray:
    """A number, or regular lists of numbers, as an array; refuses None and strings, which numpy would convert."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{value!r} is no regular list of numbers") from None
    # integers of more than 64 bits are objects for numpy; whether they fit is another question
    if (
        array.dtype.kind not in "biufc"
        and array.dtype not in _ELEMENT_OF_NUMPY
        and not all(type(item) is int for item in array.reshape(-1))
    ):
        raise TypeError(f"{value!r} is no number, and no list of numbers")
    return array

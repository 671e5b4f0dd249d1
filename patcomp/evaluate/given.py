"""What a caller gives to a program: the names of inputs and states, and their values as arrays of the program's types.

Nothing here imports PyTorch, so that a command checks what the user gives, and runs an asset, without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from patcomp.errors import EvaluationError
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.packing import is_packed
from patcomp.ir.types import ELEMENT_OF_TORCH, ML_DTYPES, TensorType, element_name, integer_range, shape_of


def _held(element: str) -> np.dtype:
    if is_packed(element):
        return np.dtype({"f": np.float32, "s": np.int8, "u": np.uint8}[element[0]])
    return numpy_dtype(element) or ML_DTYPES[element]


HELD: dict[str, np.dtype] = {element: _held(element) for element in (*ELEMENT_OF_TORCH.values(), "f4E2M1FN")}
"""The dtype of the arrays in which values of an element type are held; of those below a byte, a larger one."""

_BELOW_A_BYTE = {"int2": np.int8, "int4": np.int8, "uint1": np.uint8, "uint2": np.uint8, "uint4": np.uint8,
                 "float4_e2m1fn": np.float32}  # fmt: skip
"""The dtypes of `ml_dtypes` with elements below a byte, by name, and what holds them."""

_SHORTER = {("float64", "float32"), ("float32", "float16")}


def held(array: np.ndarray) -> np.ndarray:
    """The array, in the dtype that holds its values if its elements are below a byte."""
    wider = _BELOW_A_BYTE.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


def check_input_names(
    entry: str, what: str, given: Iterable[str], expected: Iterable[str], *, partial: bool = False
) -> None:
    """Check the names of the inputs or states that a graph is called with.

    Args:
        entry: the graph.
        what: `"input"` or `"state"`.
        given, expected: the given names, and the names that the graph has.
        partial: whether some may be missing.

    Raises:
        EvaluationError: a name is missing, or the graph has none of that name.
    """
    given, expected = set(given), set(expected)
    missing, unknown = sorted(expected - given), sorted(given - expected)
    wrong = [f"needs {what} {', '.join(missing)}"] if missing and not partial else []
    if unknown:
        there = f"its {what}s are {', '.join(sorted(expected))}" if expected else f"it has no {what}s"
        wrong.append(f"has no {what} {', '.join(map(str, unknown))}; {there}")
    if wrong:
        raise EvaluationError(f"graph @{entry} {' and '.join(wrong)}")


def array_in_type(value: Any, type_: TensorType, name: str, what: str = "input") -> np.ndarray:
    """An input or state in the dtype that the program takes: 64-bit values become 32-bit when none is lost, and float32
    becomes float16, which a target may compute in, when none overflows.

    Args:
        value: a tensor, array or number.
        type_: what the program takes.
        name, what: for messages.

    Returns:
        A contiguous array; it shares the memory of a tensor or array that has the type already.

    Raises:
        EvaluationError: the value has another dtype or shape, or a number does not fit.
    """
    given, element = f"{what} {name!r}", element_name(type_.element_type)
    array, wanted = _array_of(value, given), HELD[element]
    if (array.dtype.name, wanted.name) in _SHORTER:
        array = _shorter(array, wanted, given)
    elif array.dtype in (np.int64, np.uint64) and wanted in (np.int32, np.uint32):
        low, high = integer_range(element)
        if array.size and not low <= int(array.min()) <= int(array.max()) <= high:
            raise EvaluationError(f"{given} has values that do not fit {wanted}")
        array = array.astype(wanted)
    if array.dtype != wanted:
        raise EvaluationError(f"{given} must be of dtype {wanted}, got {array.dtype}")
    shape = shape_of(type_)
    if len(shape) != array.ndim or any(dim not in (None, size) for dim, size in zip(shape, array.shape, strict=True)):
        raise EvaluationError(f"{given} must be of type {type_}, got {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array).reshape(array.shape)  # alone, ascontiguousarray makes a 0-d array 1-d


def _shorter(array: np.ndarray, dtype: Any, what: str) -> np.ndarray:
    """Floats in a shorter dtype."""
    with np.errstate(over="ignore"):
        short = array.astype(dtype)
    if bool((np.isinf(short) & ~np.isinf(array)).any()):
        raise EvaluationError(f"{what} has values that do not fit {short.dtype}")
    return short


_DENSE = "torch.strided"


def _array_of(value: Any, what: str) -> np.ndarray:
    """The array of a tensor, array, number or list of numbers; as for PyTorch, Python's floats are float32."""
    kind = type(value).__name__
    if (layout := str(getattr(value, "layout", _DENSE))) != _DENSE:
        raise EvaluationError(f"{what} is {layout.removeprefix('torch.')}; give its dense form, to_dense()")
    if getattr(value, "is_meta", False):
        raise EvaluationError(f"{what} is on the meta device and has no numbers; give a tensor on the CPU")
    if _is_array(value):
        try:
            return held(as_array(value))
        except (TypeError, RuntimeError) as error:  # of a tensor without memory, or of a dtype without arrays
            raise EvaluationError(f"{what} must be a tensor with numbers in memory: {error}") from error
    if _holds_arrays(value):
        raise EvaluationError(f"{what} must be a tensor, got a {kind} that holds tensors; give the tensor itself")
    wrong = EvaluationError(f"{what} must be a tensor, an array or a number, got a {kind}")
    if not isinstance(value, bool | int | float | complex | Sequence) and not hasattr(value, "__array__"):
        raise wrong
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        raise wrong from None
    if array.dtype.kind not in "biufc":
        raise wrong
    short = {"float64": np.float32, "complex128": np.complex64}.get(array.dtype.name)
    return array if short is None else _shorter(array, short, what)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or _is_tensor(value)


def _holds_arrays(value: Any) -> bool:
    """Whether a list, tuple or mapping has an array in it, at any depth."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_is_array(each) or _holds_arrays(each) for each in inner)


def as_array(value: Any) -> np.ndarray:
    """A numpy array of an array or torch tensor, sharing its memory; `ml_dtypes` for what numpy lacks."""
    if not _is_tensor(value):
        return np.asarray(value)
    from patcomp.evaluate.element_types import array_of

    return array_of(value)

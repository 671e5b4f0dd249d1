"""Constants: small ones as dense attributes, weights as handles into a blob store that never copies them.

A constant of fewer than 256 elements is `dense<...>` in the text, a constant of equal elements is written as one
number, and every other constant is `dense_resource<key>`, whose bytes PyTorch owns until an asset is written.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from patcomp.ir import packing
from patcomp.ir.pages import release
from patcomp.ir.types import (
    ML_DTYPES,
    Shape,
    element_name,
    element_type,
    shape_of,
    static_shape,
    storage_bytes,
    tensor,
)
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    Operation,
    OpResult,
    SSAValue,
    StringAttr,
    TensorType,
    unchecked,
)

INLINE_LIMIT = 256
"""From this many elements on, a constant is a blob."""
_FIRST_BYTES = 4096
"""Weights that differ here need not be read to be told apart."""
MOST_INTEGERS = 1_000_000
"""Sizes, axes and sections are fewer; a text may have a constant that repeats one number up to 2^62 times."""
PACKED_LIMIT = 32
"""The same for elements below 8 bits, which take a byte each in a dense attribute."""

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


NO_VALUES = (
    "the weight {!r} has no values, because its tensor is fake or on the meta device; give the model its weights, then "
    "export and convert it again"
)


@dataclass(eq=False)
class Blob:
    """The bytes of one weight, in their owner's memory, and their tensor type."""

    key: str
    data: memoryview
    type: TensorType
    owner: object = None
    """The object that must stay alive for `data` to be valid (the PyTorch tensor)."""
    _hash: str = ""

    @property
    def content_hash(self) -> str:
        """SHA-256 of type and bytes; computed on first use, because it reads the whole weight."""
        if not self._hash:
            digest = hashlib.sha256(str(self.type).encode())
            digest.update(self.data)
            release([self.data])
            self._hash = digest.hexdigest()
        return self._hash

    def array(self) -> np.ndarray:
        """The weight as a numpy array without copying; raw `uint8` where numpy lacks the element type."""
        dtype = numpy_dtype(self.type.element_type)
        raw = np.frombuffer(self.data, dtype=np.uint8)
        return raw if dtype is None else raw.view(dtype).reshape(static_shape(self.type))


@dataclass(eq=False)
class BlobStore:
    """The weights of a module by key; tensors that share memory have one entry, also across graphs."""

    blobs: dict[str, Blob] = field(default_factory=dict)
    without_values: dict[str, object] = field(default_factory=dict)
    """The keys of weights that a program names, but that have no bytes, with the tensor of each. Such a program has a
    text; it can neither be run nor saved."""
    _by_memory: dict[tuple[int, int, TensorType], str] = field(default_factory=dict)
    _by_content: dict[tuple[TensorType, str], str] = field(default_factory=dict)

    def add(self, key: str, data: memoryview | bytes | np.ndarray, type_: TensorType, owner: object = None) -> str:
        """Store a weight without copying it; return its key.

        Args:
            key: requested name, such as `model.layers.0.weight`; it is made an MLIR identifier and unique.
            data: the bytes in C order; sub-byte elements bit-packed, `i1` a byte each.
            type_: static tensor type of the weight.

        Raises:
            ValueError: the number of bytes does not fit the type.
        """
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        expected = storage_bytes(static_shape(type_), type_.element_type)
        if raw.nbytes != expected:
            raise ValueError(f"weight {key!r} has {raw.nbytes} bytes, but {type_} takes {expected}")
        memory = (raw.__array_interface__["data"][0], raw.nbytes, type_)
        if raw.nbytes and memory in self._by_memory:
            return self._by_memory[memory]
        unique = self._unique(re.sub(r"[^A-Za-z0-9_.$]", "_", key))
        self.blobs[unique] = Blob(unique, memoryview(raw), type_, (owner, raw))  # type: ignore[arg-type]
        self._by_memory[memory] = unique
        return unique

    def remove(self, key: str) -> None:
        """Drop a weight, and what it is found by: its memory may soon belong to another one."""
        del self.blobs[key]
        for found in (self._by_memory, self._by_content):
            for known in [known for known, name in found.items() if name == key]:
                del found[known]  # type: ignore[arg-type]

    def renamed(self, names: Mapping[str, str]) -> BlobStore:
        """The same weights under other keys."""
        made = BlobStore()
        made.blobs = {names[key]: replace(blob, key=names[key]) for key, blob in self.blobs.items()}
        made.without_values = {names[key]: tensor for key, tensor in self.without_values.items()}
        made._by_memory = {memory: names[key] for memory, key in self._by_memory.items() if key in names}
        made._by_content = {content: names[key] for content, key in self._by_content.items() if key in names}
        return made

    def copy(self) -> BlobStore:
        """The same weights in a store of its own, without copies of their bytes."""
        made = copy(self)
        for name in ("blobs", "without_values", "_by_memory", "_by_content"):
            setattr(made, name, dict(getattr(self, name)))
        return made

    def with_values(self, key: str, values: np.ndarray) -> BlobStore:
        """A store in which one weight has other values, of its own type and shape."""
        made, raw = self.copy(), np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        made.blobs[key] = Blob(key, memoryview(raw), self.blobs[key].type, raw)  # type: ignore[arg-type]
        return made

    def add_packed(self, key: str, data: np.ndarray, type_: TensorType) -> str:
        """Store bytes that were packed here, unless equal ones are stored: several ops may read a compressed weight."""
        content = (type_, hashlib.sha256(data.tobytes()).hexdigest())
        if content not in self._by_content:
            self._by_content[content] = self.add(key, data, type_)
        return self._by_content[content]

    def name(self, key: str, type_: TensorType, tensor: object) -> str:
        """The key of a weight without values; the same tensor has the same key.

        Args:
            key: requested name, as in `add`.
            type_: static tensor type of the weight.
            tensor: the PyTorch tensor that has no values.
        """
        memory = (id(tensor), -1, type_)
        if memory not in self._by_memory:
            self._by_memory[memory] = self._unique(re.sub(r"[^A-Za-z0-9_.$]", "_", key))
            self.without_values[self._by_memory[memory]] = tensor
        return self._by_memory[memory]

    def _unique(self, key: str) -> str:
        if not re.match(r"[A-Za-z_]", key):
            key = f"_{key}"
        candidate, number = key, 1
        while candidate in self.blobs or candidate in self.without_values:
            candidate, number = f"{key}_{number}", number + 1
        return candidate

    def __getitem__(self, key: str) -> Blob:
        return self.blobs[key]

    def __contains__(self, key: str) -> bool:
        return key in self.blobs

    def __iter__(self) -> Iterator[Blob]:
        return iter(self.blobs.values())

    def same_content(self, keys: Iterable[str]) -> dict[str, str]:
        """For each key, the first of them whose weight has the same type and bytes."""
        alike: dict[tuple[TensorType, bytes], list[Blob]] = {}
        for key in dict.fromkeys(keys):
            blob = self.blobs[key]
            alike.setdefault((blob.type, bytes(blob.data[:_FIRST_BYTES])), []).append(blob)
        result = {}
        for blobs in alike.values():
            first: dict[str, str] = {}
            for blob in blobs:  # one that begins like no other is not read
                content = blob.content_hash if len(blobs) > 1 else ""
                result[blob.key] = first.setdefault(content, blob.key)
        return result


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


def dense(array: np.ndarray, type_: TensorType) -> DenseIntOrFPElementsAttr:
    """The dense attribute of an array in storage form; equal elements are stored once."""
    raw = np.ascontiguousarray(array)
    flat = raw.reshape(-1)
    if flat.size > 1 and is_splat(flat):
        flat = flat[:1]
    if raw.size <= _INTERNED:
        return _interned(shape_of(type_), type_.element_type, type_.encoding, flat.tobytes())
    return unchecked(DenseIntOrFPElementsAttr, type=type_, data=unchecked(BytesAttr, data=flat.tobytes()))


_INTERNED = 16
"""Up to this many elements, equal dense attributes share one object, because numbers, axes and shapes repeat often."""


@lru_cache(maxsize=4096)
def _interned(shape: Shape, element: Attribute, encoding: Attribute, data: bytes) -> DenseIntOrFPElementsAttr:
    type_ = tensor(shape, element, encoding)
    return unchecked(DenseIntOrFPElementsAttr, type=type_, data=unchecked(BytesAttr, data=data))


def is_splat(array: np.ndarray) -> bool:
    """Whether all elements have the same bits; stops at the first block that differs."""
    flat = array.reshape(-1)
    if flat.size == 0:
        return False
    bits = flat.view(np.dtype((np.void, flat.dtype.itemsize)))
    if bits[-1] != bits[0]:
        return False
    return all(bool((bits[i : i + 65536] == bits[0]).all()) for i in range(0, flat.size, 65536))


def constant_attribute(
    array: np.ndarray, element: Attribute, blobs: BlobStore | None, key: str = "constant", owner: object = None
) -> DenseIntOrFPElementsAttr | DenseResourceAttr:
    """The attribute of a constant: dense, splat, or a handle to a blob that it puts into the store.

    Args:
        array: values in storage form (`to_numpy`); its shape is the constant's shape.
        element: element type.
        blobs: store for constants that are too large to print; None makes all constants dense.
        key: requested name of the blob.
    """
    type_, name = tensor(array.shape, element), element_name(element)
    packed = packing.is_packed(name)
    if blobs is None or array.size < (PACKED_LIMIT if packed else INLINE_LIMIT) or is_splat(array):
        return dense(array, type_)
    unique = blobs.add_packed(key, packing.pack(array, name), type_) if packed else blobs.add(key, array, type_, owner)
    return unchecked(DenseResourceAttr, resource_handle=unchecked(StringAttr, data=unique), type=type_)


def weight_key(value: SSAValue) -> str | None:
    """The key of the weight that a value is; None for small constants, and for what is computed."""
    attribute = value.owner.properties.get("value") if isinstance(value.owner, Operation) else None
    return attribute.resource_handle.data if isinstance(attribute, DenseResourceAttr) else None


def _dense_values(attribute: DenseIntOrFPElementsAttr) -> np.ndarray | None:
    # kept on the attribute, because a lookup would hash the attribute, which costs more than most uses
    try:
        return attribute.__dict__["_values"]
    except KeyError:
        values = _read(attribute)
        object.__setattr__(attribute, "_values", values)
        return values


def _read(attribute: DenseIntOrFPElementsAttr) -> np.ndarray | None:
    name, shape = element_name(attribute.type.element_type), static_shape(attribute.type)
    raw = np.frombuffer(attribute.data.data, dtype=np.uint8)
    dtype = numpy_dtype(name)
    values = raw.view(dtype) if dtype is not None else packing.numbers(raw, name)
    count = math.prod(shape)
    if count * values.itemsize >= 2**62:  # numpy has no such array
        return None
    values = np.broadcast_to(values, (count,)) if values.size == 1 else values
    values = values.reshape(shape)
    values.flags.writeable = False
    return values


def attribute_values(attribute: Attribute, blobs: BlobStore | None = None) -> np.ndarray | None:
    """The values of a constant's attribute as a read-only array; None if not readable.

    Floats that numpy lacks (bf16, f8, f4) are float32, integers below 8 bits are int8 or uint8.
    """
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        return _dense_values(attribute)
    if blobs is not None and isinstance(attribute, DenseResourceAttr):
        blob = blobs.blobs.get(attribute.resource_handle.data)
        return None if blob is None else _blob_values(blob)
    return None


def _blob_values(blob: Blob) -> np.ndarray:
    name, shape = element_name(blob.type.element_type), static_shape(blob.type)
    if numpy_dtype(name) is not None:
        return blob.array()
    raw = np.frombuffer(blob.data, dtype=np.uint8)
    stored = packing.unpack(raw, name, math.prod(shape)) if packing.is_packed(name) else raw
    return packing.numbers(stored, name).reshape(shape)


def is_constant(what: SSAValue | Operation | Block) -> bool:
    """Whether an op, or the maker of a value, is the `coreai.constant` that both dialects share."""
    # `isinstance` on xDSL's abstract classes takes several calls, and every rule asks this
    maker = what.op if type(what) is OpResult else what
    return getattr(maker, "name", None) == "coreai.constant"


def constant_values(value: SSAValue, blobs: BlobStore | None = None) -> np.ndarray | None:
    """The elements of a `coreai.constant`'s value; None for other values, and for weights without their store."""
    owner = value.owner
    if not is_constant(owner):
        return None
    attribute = owner.properties.get("value")  # type: ignore[union-attr]  # a broken text may lack it
    return None if attribute is None else attribute_values(attribute, blobs)


def literal_values(literal: Any, element: Attribute) -> np.ndarray | None:
    """A Python literal as an array in the form of `constant_values` for an element type."""
    number_kind = element_name(element)
    is_bool = isinstance(literal, bool)
    if is_bool != (number_kind == "i1"):
        return None
    array, _ = to_numpy(literal, element)
    return array if numpy_dtype(number_kind) is not None else packing.numbers(array, number_kind)


def constant_equals(value: SSAValue, literal: Any) -> bool:
    """Whether a value is a constant equal to a literal: every element equals the number, or the elements equal the
    list's, after rounding to the constant's element type."""
    values = constant_values(value)
    if values is None or not isinstance(value.type, TensorType):
        return False
    wanted = as_element(literal, value.type.element_type)
    return wanted is not None and all_equal(values, wanted)


def all_equal(values: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether every element equals a number, or the elements equal those of an array of the same shape."""
    if not values.size or (wanted.ndim and wanted.shape != values.shape):
        return False
    if not wanted.ndim:
        if values[(0,) * values.ndim] != wanted:
            return False
        if not any(values.strides):  # one number, repeated
            return True
    return bool((values == wanted).all())


def as_element(literal: Any, element: Attribute) -> np.ndarray | None:
    """A literal as an array of an element type; None if the type cannot hold it."""
    # lists are not remembered, because (1,) and (1.0,) are one key
    return (_known_rounded if isinstance(literal, bool | int | float) else _rounded)(literal, element)


def _rounded(literal: Any, element: Attribute) -> np.ndarray | None:
    try:
        return literal_values(literal, element)
    except (OverflowError, TypeError, ValueError):
        return None


_known_rounded = lru_cache(maxsize=1024, typed=True)(_rounded)


def constant_integers(value: SSAValue) -> tuple[int, ...] | None:
    """The integers of a constant index operand (0-d or 1-d), None when it is not constant, or no index operand."""
    values = constant_values(value)
    return None if values is None or values.size > MOST_INTEGERS else tuple(int(item) for item in values.reshape(-1))

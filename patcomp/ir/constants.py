"""Constants: small ones as dense attributes, weights as names in the store of blobs; and reading both.

A constant of fewer than 256 elements is `dense<...>` in the text, a constant of equal elements is written as one
number, and every other constant is `dense_resource<key>`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from patcomp.ir import packing
from patcomp.ir.blobs import Blob, BlobStore
from patcomp.ir.elements import numpy_dtype, to_numpy
from patcomp.ir.pages import release
from patcomp.ir.types import (
    Shape,
    element_name,
    shape_of,
    static_shape,
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
    maker_of,
    unchecked,
)

INLINE_LIMIT = 256
"""From this many elements on, a constant is a blob."""
MOST_INTEGERS = 1_000_000
"""Sizes, axes and sections are fewer; a text may have a constant that repeats one number up to 2^62 times."""
PACKED_LIMIT = 32
"""The same for elements below 8 bits, which take a byte each in a dense attribute."""


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
    if packed:
        unique = blobs.add_packed(key, packing.pack(array, name), type_)
        if array.flags.c_contiguous:
            release([array.data.cast("B")])
    else:
        unique = blobs.add(key, array, type_, owner)
    return unchecked(DenseResourceAttr, resource_handle=unchecked(StringAttr, data=unique), type=type_)


def weight_key(value: SSAValue) -> str | None:
    """The key of the weight that a value is; None for small constants, and for what is computed."""
    maker = maker_of(value)
    attribute = None if maker is None else maker.properties.get("value")
    return attribute.resource_handle.data if isinstance(attribute, DenseResourceAttr) else None


def _dense_values(attribute: DenseIntOrFPElementsAttr) -> np.ndarray | None:
    # kept on the attribute, because a lookup would hash the attribute, which costs more than most uses
    try:
        return attribute.__dict__["_values"]
    except KeyError:
        values = _read(attribute)
        object.__setattr__(attribute, "_values", values)
        return values


def was_read(attribute: Attribute) -> bool:
    """Whether somebody read the numbers of a small constant, and not only whether they are one number."""
    return "_values" in attribute.__dict__


def unread_values(value: SSAValue) -> np.ndarray | None:
    """As `constant_values`, for a reader to whom all constants of several numbers are alike; it does not count."""
    attribute = value.owner.properties.get("value") if is_constant(value.owner) else None  # type: ignore[union-attr]
    return _peeked(attribute) if isinstance(attribute, DenseIntOrFPElementsAttr) else None


def uniform_number(attribute: Attribute | None) -> np.generic | None:
    """The number that all elements of a small constant equal; None if there is none. It does not count as reading."""
    values = _peeked(attribute) if isinstance(attribute, DenseIntOrFPElementsAttr) else None
    if values is None or values.size == 0:
        return None
    first = values[(0,) * values.ndim]
    return first if bool((values == first).all()) else None  # type: ignore[no-any-return]


def _peeked(attribute: DenseIntOrFPElementsAttr) -> np.ndarray | None:
    return attribute.__dict__["_values"] if was_read(attribute) else _read(attribute)


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
        blobs.read.add(attribute.resource_handle.data)
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
    """Whether every element equals a number, or the elements equal an array of the same shape."""
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

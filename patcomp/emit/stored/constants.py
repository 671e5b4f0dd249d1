"""Constants of the IR as constants of an asset, and back. Weights are passed on, neither read nor copied.

In the IR, an element below 8 bits takes a byte, sign-extended; in an asset its further bits are zero. Elements of
`ui1` take a bit each in an asset. Equal elements are stored once in both, except that an asset repeats those of `i1`
and the bit of those of `ui1`.
"""

from __future__ import annotations

import math

import numpy as np

from patcomp.emit.bytecode import StoredEntry
from patcomp.emit.stored.elements import tensor_element_name
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.ir import packing
from patcomp.ir.types import BIT_WIDTHS, element_name, static_shape
from patcomp.ir.xdsl import BytesAttr, DenseIntOrFPElementsAttr, DenseResourceAttr, TensorType, unchecked


def stored_elements(attribute: DenseIntOrFPElementsAttr) -> StoredEntry:
    """The stored form of a constant that is written in the text."""
    name = element_name(attribute.type.element_type)
    count = math.prod(static_shape(attribute.type))
    data = bytes(attribute.data.data)
    size = max(1, BIT_WIDTHS[name] // 8)
    if packing.is_packed(name):
        mask = (1 << BIT_WIDTHS[name]) - 1
        data = (np.frombuffer(data, np.uint8) & mask).tobytes()
    splat = count > 0 and data == data[:size] * (len(data) // size)
    if splat and name == "ui1":
        data = b"\xff" if data[0] else b"\0"
    elif splat:
        data = data[:1] * count if name == "i1" else data[:size]
    elif name == "ui1":
        data = packing.pack(np.frombuffer(data, np.uint8), name).tobytes()
    return ("dense_elements", int(splat), data)


def ir_elements(
    entry: StoredEntry, stored_type: StoredEntry, type_: TensorType
) -> DenseIntOrFPElementsAttr | DenseResourceAttr:
    """The value of a constant; that of a weight has its name.

    Raises:
        UnsupportedInAssetError: the stored bytes do not fit the type, or are no constant.
    """
    match entry:
        case ("dense_resource", str() as name):
            return DenseResourceAttr.from_params(name, type_)
        case ("dense_elements", splat, bytes() as data):
            name, count = tensor_element_name(stored_type), math.prod(static_shape(type_))
            width = BIT_WIDTHS[name]
            size, expected = max(1, width // 8), 1 if splat else count
            if splat and name == "i1" and data == data[:1] * count:
                data = data[:1]
            if splat and name == "ui1":
                data = data.replace(b"\xff", b"\1")
            if name == "ui1" and not splat:
                if len(data) == (count + 7) // 8:
                    return _dense(packing.unpack(np.frombuffer(data, np.uint8), name, count).tobytes(), type_)
            elif len(data) == expected * size and (count or not splat):
                if name[0] == "s" and width < 8:
                    data = packing.sign_extended(np.frombuffer(data, np.uint8), name).tobytes()
                return _dense(data, type_)
            raise UnsupportedInAssetError(f"the asset has a constant of {len(data)} bytes with the type {type_}")
    raise UnsupportedInAssetError(f"the asset has a constant of kind {entry[0]}, which patcomp does not know")


def _dense(data: bytes, type_: TensorType) -> DenseIntOrFPElementsAttr:
    return unchecked(DenseIntOrFPElementsAttr, type=type_, data=BytesAttr(data))

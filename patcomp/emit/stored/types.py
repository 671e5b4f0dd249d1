"""Types of the IR as types of an asset, and back."""

from __future__ import annotations

import re
from collections.abc import Callable

from patcomp.emit.bytecode import StoredEntry
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.elements import ELEMENT_NAMES, STORED_ELEMENTS
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.ir.attributes import HardwareConstraintsAttr, SparseEncodingAttr
from patcomp.ir.types import TOKEN, HandleType, ImageType, element_name, element_type, shape_of, tensor
from patcomp.ir.xdsl import Attribute, FunctionType, StringAttr, TensorType

_BACKINGS = {"IOSurface": 1, "MTLBuffer": 2, "Heap": 3}
"""What a tensor with hardware constraints lies in."""
_BACKING_NAMES = {number: name for name, number in _BACKINGS.items()}

_PIXEL_FORMATS = {
    "k24RGB": 24,
    "k32ARGB": 32,
    "k32BGRA": int.from_bytes(b"BGRA"),
    "k420YpCbCr8Planar": int.from_bytes(b"y420"),
}
"""The codes of pixel formats, those of Core Video."""
_PIXEL_FORMAT_NAMES = {code: name for name, code in _PIXEL_FORMATS.items()}

_SPARSE = re.compile(r"bitmask, numNonZero = (\d+), posWidth = (\d+), crdWidth = (\d+)")
_CONSTRAINTS = re.compile(r"(\w+), alignments: \[([\dx]*)\], interleave: \[([\dx]*)\]")
_IMAGE = re.compile(r"<(\w+)> x (\d+) : i64 x (\d+) : i64")


def stored_element(name: str) -> StoredEntry:
    """The stored element type of a name such as `"f32"`.

    Raises:
        UnsupportedInAssetError: an asset has no such element type.
    """
    if name not in STORED_ELEMENTS:
        raise UnsupportedInAssetError(f"an asset cannot hold the element type {name}")
    return (STORED_ELEMENTS[name],)


def stored_type(type_: Attribute) -> StoredEntry:
    """The stored form of a type.

    Raises:
        UnsupportedInAssetError: patcomp does not know how an asset stores the type.
    """
    if isinstance(type_, TensorType):
        dims = tuple([OPEN_DIMENSION if dim is None else dim for dim in shape_of(type_)])
        element = stored_element(element_name(type_.element_type))
        encoding = _stored_encoding(type_.encoding)
        return ("tensor_v1", dims, element) if encoding is None else ("tensor_v1", dims, element, encoding)
    if isinstance(type_, HandleType):
        return ("handle_v1", stored_type(type_.tensor_type))
    if type_ == TOKEN:
        return ("token_v1",)
    if isinstance(type_, FunctionType):
        return ("function_v1", tuple(map(stored_type, type_.outputs)), tuple(map(stored_type, type_.inputs)))
    if isinstance(type_, ImageType) and (image := _IMAGE.fullmatch(type_.text.data)) and image[1] in _PIXEL_FORMATS:
        return ("image_v1", ("pixel_format_v1", _PIXEL_FORMATS[image[1]]), int(image[2]), int(image[3]))
    raise UnsupportedInAssetError(f"an asset cannot hold the type {type_}")


def _stored_encoding(encoding: Attribute) -> StoredEntry | None:
    if isinstance(encoding, SparseEncodingAttr) and (sparse := _SPARSE.fullmatch(encoding.text.data)):
        return ("sparse_tensor_encoding_v1", 0, int(sparse[2]), int(sparse[3]), (), int(sparse[1]))
    if isinstance(encoding, HardwareConstraintsAttr) and (layout := _CONSTRAINTS.fullmatch(encoding.text.data)):
        if layout[1] in _BACKINGS:
            sizes = [tuple(int(size) for size in layout[group].split("x") if size) for group in (2, 3)]
            return ("ax.hw_constraints_v1", sizes[0], sizes[1], _BACKINGS[layout[1]])
    elif str(encoding) == "none":
        return None
    raise UnsupportedInAssetError(f"an asset cannot hold a tensor with the encoding {encoding}")


def ir_type(entry: StoredEntry) -> Attribute:
    """The type of a stored one.

    Raises:
        UnsupportedInAssetError: the IR has no such type.
    """
    read = _READERS.get(entry[0])
    if read is None:
        raise UnsupportedInAssetError(f"the asset has values of the type {entry[0]}, which patcomp does not know")
    return read(entry)


def _tensor(entry: StoredEntry) -> Attribute:
    _, dims, element, *encoding = entry
    if element[0] not in ELEMENT_NAMES:
        raise UnsupportedInAssetError(f"the asset has tensors of {element[0]}, which patcomp does not know")
    if any(dim < 0 and dim != OPEN_DIMENSION for dim in dims):
        raise UnsupportedInAssetError(f"the asset has a tensor with the dimensions {list(dims)[:8]}")
    shape = [None if dim == OPEN_DIMENSION else dim for dim in dims]
    made = _ir_encoding(encoding[0]) if encoding else None
    return tensor(shape, element_type(ELEMENT_NAMES[element[0]]), made)


def _ir_encoding(entry: StoredEntry) -> Attribute:
    if entry[0] == "sparse_tensor_encoding_v1" and entry[1] == 0 and not entry[4]:
        _, _, positions, coordinates, _, count = entry
        text = f"bitmask, numNonZero = {count}, posWidth = {positions}, crdWidth = {coordinates}"
        return SparseEncodingAttr(StringAttr(text))
    if entry[0] == "ax.hw_constraints_v1" and entry[3] in _BACKING_NAMES:
        alignments, interleave = ("x".join(map(str, sizes)) for sizes in entry[1:3])
        text = f"{_BACKING_NAMES[entry[3]]}, alignments: [{alignments}], interleave: [{interleave}]"
        return HardwareConstraintsAttr(StringAttr(text))
    raise UnsupportedInAssetError(f"the asset has tensors with the encoding {entry[0]}, which patcomp does not know")


def _handle(entry: StoredEntry) -> Attribute:
    return HandleType.new([ir_type(entry[1])])


def _function(entry: StoredEntry) -> Attribute:
    return FunctionType.from_lists(list(map(ir_type, entry[2])), list(map(ir_type, entry[1])))


def _image(entry: StoredEntry) -> Attribute:
    pixels = entry[1]
    if pixels[0] != "pixel_format_v1" or pixels[1] not in _PIXEL_FORMAT_NAMES:
        raise UnsupportedInAssetError("the asset has images of a pixel format that patcomp does not know")
    return ImageType(StringAttr(f"<{_PIXEL_FORMAT_NAMES[pixels[1]]}> x {entry[2]} : i64 x {entry[3]} : i64"))


_READERS: dict[str, Callable[[StoredEntry], Attribute]] = {
    "tensor_v1": _tensor,
    "handle_v1": _handle,
    "token_v1": lambda entry: TOKEN,
    "function_v1": _function,
    "image_v1": _image,
}

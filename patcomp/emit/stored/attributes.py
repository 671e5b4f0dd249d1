"""Attributes of the IR as attributes of an asset, and back: names of inputs, declarations of composites, callees."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from patcomp.emit.bytecode import StoredEntry
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.ir.attributes import CompositeDeclarationAttr, SymbolConstantAttr
from patcomp.ir.types import ELEMENT_TYPES, element_name
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
)

NO_ENTRIES: StoredEntry = ("array", ())
_PREFIX, _STORED_PREFIX = "coreai.", "aicode."
"""The dialect before the names of attributes, as in `coreai.name`."""

_FLOATS = {"f32": "<f", "f64": "<d"}
"""The format in `struct` of the floats that attributes may be."""


def stored_flag(value: bool) -> StoredEntry:
    """A keyword of a graph that is there or not."""
    return ("integer", (1, 1, int(value)))


def stored_value(attribute: Attribute) -> StoredEntry:
    """The stored form of a string, a number, a list or a dictionary.

    Raises:
        UnsupportedInAssetError: patcomp does not know how an asset stores the attribute.
    """
    if isinstance(attribute, StringAttr):
        return ("string", attribute.data)
    if isinstance(attribute, IntegerAttr) and isinstance(attribute.type, IntegerType):
        width, number = attribute.type.width.data, attribute.value.data
        unsigned = element_name(attribute.type)[0] == "u"
        return ("integer", (width, int(unsigned), number & (1 << width) - 1))
    if isinstance(attribute, FloatAttr) and (name := element_name(attribute.type)) in _FLOATS:
        data = struct.pack(_FLOATS[name], attribute.value.data)
        return ("float", (8 * len(data), int.from_bytes(data, "little")))
    if isinstance(attribute, UnitAttr):
        return ("unit_v1",)
    if isinstance(attribute, SymbolRefAttr):
        return _stored_symbol(attribute)
    if isinstance(attribute, ArrayAttr):
        return ("array", tuple(map(stored_value, attribute.data)))
    if isinstance(attribute, DictionaryAttr):
        return ("dictionary", _stored_fields(attribute.data))
    raise UnsupportedInAssetError(f"an asset cannot hold the attribute {attribute}")


def _stored_fields(fields: Mapping[str, Attribute]) -> tuple[StoredEntry, ...]:
    return tuple([("opaque", name, (stored_value(value),)) for name, value in sorted(fields.items())])


def stored_names(attribute: Attribute | None) -> StoredEntry:
    """The stored form of the attributes of arguments or results: the names at run time, and what else they hold."""
    if not isinstance(attribute, ArrayAttr):
        return NO_ENTRIES
    made = []
    for each in attribute.data:
        assert isinstance(each, DictionaryAttr)
        # what has no prefix of a dialect is not kept, as coreai-core does it
        fields = {key.replace(_PREFIX, _STORED_PREFIX, 1): value for key, value in each.data.items() if "." in key}
        made.append(("array", _stored_fields(fields)))
    return ("array", tuple(made))


def stored_declaration(declaration: CompositeDeclarationAttr) -> StoredEntry:
    """The stored form of the declaration of a composite."""
    return ("opaque", declaration.composite_name.data, _stored_fields(declaration.fields.data))


def stored_callee(callee: SymbolConstantAttr) -> StoredEntry:
    """The stored form of the name of a called graph."""
    return ("param.constant_v1", _stored_symbol(callee.symbol), ("param.symbol_v1",))


def _stored_symbol(symbol: SymbolRefAttr) -> StoredEntry:
    nested = [each.data for each in symbol.nested_references.data]
    return ("symbol_ref_v1", (symbol.root_reference.data, *nested))


def ir_flag(entry: StoredEntry) -> bool:
    """Whether a keyword of a graph is there."""
    return bool(entry[0] == "integer" and entry[1][2])


def ir_value(entry: StoredEntry) -> Attribute:
    """The attribute of a stored string, number, list or dictionary.

    Raises:
        UnsupportedInAssetError: the entry is none of these.
    """
    match entry:
        case ("string", str() as text):
            return StringAttr(text)
        case ("integer", (width, unsigned, number)):
            name = "i1" if width == 1 else f"{'u' if unsigned else 's'}i{width}"
            if name in ELEMENT_TYPES:
                if name[0] == "s" and number >> width - 1:
                    number -= 1 << width
                return IntegerAttr(number, ELEMENT_TYPES[name])  # type: ignore[call-overload, no-any-return]
        case ("float", (32 | 64 as width, bits)):
            name = f"f{width}"
            return FloatAttr(struct.unpack(_FLOATS[name], bits.to_bytes(width // 8, "little"))[0], ELEMENT_TYPES[name])  # type: ignore[call-overload, no-any-return]
        case ("unit_v1",):
            return UnitAttr()
        case ("symbol_ref_v1", (str() as root, *nested)):
            return SymbolRefAttr(root, list(nested))
        case ("array", items):
            return ArrayAttr([ir_value(item) for item in items])
        case ("dictionary", items):
            return DictionaryAttr(_ir_fields(items))
    raise UnsupportedInAssetError(f"the asset has an attribute of kind {entry[0]} that patcomp does not know")


def _ir_fields(entries: Iterable[StoredEntry]) -> dict[str, Attribute]:
    fields = {}
    for entry in entries:
        match entry:
            case ("opaque", str() as name, (value,)):
                fields[name] = ir_value(value)
            case _:
                raise UnsupportedInAssetError("the asset has a named attribute without a name or value")
    return fields


def ir_names(entry: StoredEntry) -> ArrayAttr | None:
    """The attributes of arguments or results; None if there are none."""
    match entry:
        case ("array", ()):
            return None
        case ("array", items) if all(item[0] == "array" for item in items):
            return ArrayAttr([DictionaryAttr(_without_prefix(_ir_fields(item[1]))) for item in items])
    raise UnsupportedInAssetError("the asset has attributes of arguments in a form that patcomp does not know")


def _without_prefix(fields: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {key.replace(_STORED_PREFIX, _PREFIX, 1): value for key, value in fields.items()}


def ir_declaration(entry: StoredEntry) -> CompositeDeclarationAttr:
    """The declaration of a composite."""
    match entry:
        case ("opaque", str() as name, items):
            return CompositeDeclarationAttr(StringAttr(name), DictionaryAttr(_ir_fields(items)))
    raise UnsupportedInAssetError("the asset declares a composite in a form that patcomp does not know")


def ir_callee(entry: StoredEntry) -> SymbolConstantAttr:
    """The name of a called graph."""
    match entry:
        case ("param.constant_v1", ("symbol_ref_v1", (str() as root, *nested)), _):
            return SymbolConstantAttr(SymbolRefAttr(root, list(nested)))
    raise UnsupportedInAssetError("the asset has a call without the name of a graph")

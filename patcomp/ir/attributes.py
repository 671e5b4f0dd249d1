"""Attributes of the `coreai` dialect: composite declarations, enumerations, symbols, encodings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache

from patcomp.ir.rows import PropertySlot
from patcomp.ir.types import SYMBOL, BalancedText
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    AttrParser,
    Data,
    DictionaryAttr,
    Float32Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ParametrizedAttribute,
    Printer,
    Signedness,
    StringAttr,
    SymbolRefAttr,
    irdl_attr_definition,
    unchecked,
)


@irdl_attr_definition
class CompositeDeclarationAttr(ParametrizedAttribute):
    """`#coreai.composite_declaration<"rms_norm" = {input_names = [...], op_attrs = {...}, output_names = [...]}>`."""

    name = "coreai.composite_declaration"
    composite_name: StringAttr
    fields: DictionaryAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            name = StringAttr(parser.parse_str_literal())
            fields = DictionaryAttr({})
            if parser.parse_optional_punctuation("=") is not None:
                fields = DictionaryAttr(parser.parse_optional_dictionary_attr_dict())
            return [name, fields]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.composite_name.data)
            if self.fields.data:
                printer.print_string(" = ")
                printer.print_attribute(self.fields)


_BOOL, _INTEGER = IntegerType(1), IntegerType(64, Signedness.SIGNED)


def composite_value(value: object) -> Attribute:
    """A Python value as an op attribute of a composite declaration.

    bool -> `true`/`false`, int -> `si64`, float -> `f32`, str, and lists, tuples and dicts of those.

    Raises:
        TypeError: any other kind of value.
        OverflowError: an int outside 64 bits, or a float outside 32.
    """
    if isinstance(value, bool):
        return IntegerAttr(int(value), _BOOL)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise OverflowError(f"the composite attribute {value} does not fit 64 bits")
        return IntegerAttr(value, _INTEGER)
    if isinstance(value, float):
        try:
            return FloatAttr(value, Float32Type())
        except OverflowError:
            raise OverflowError(f"the composite attribute {value} does not fit 32 bits") from None
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, list | tuple):
        return ArrayAttr([composite_value(item) for item in value])
    if isinstance(value, Mapping):
        return DictionaryAttr({str(key): composite_value(value[key]) for key in sorted(value)})
    raise TypeError(
        f"a composite attribute must be bool, int, float, str, or a list or dict of those; "
        f"got {value!r} of type {type(value).__name__}"
    )


def composite_declaration(
    name: str,
    *,
    input_names: Sequence[str],
    output_names: Sequence[str] = ("output",),
    attributes: Mapping[str, object] | None = None,
    version: int = 1,
) -> CompositeDeclarationAttr:
    """The declaration by which the Core AI compiler recognises a graph as a composite op.

    Args:
        name: the composite's name, such as `"rms_norm"`.
        input_names: one name for each operand of the composite, in order.
        output_names: one name for each result.
        attributes: attribute values (`composite_value` lists the types); `None` values are left out.
        version: version of the composite's definition.

    Raises:
        TypeError: a name that is not a string, or an attribute value of an unsupported type.
    """
    for given in (*input_names, *output_names):
        if not isinstance(given, str):
            raise TypeError(f"composite {name!r}: input and output names must be strings, got {given!r}")
    values = {key: value for key, value in (attributes or {}).items() if value is not None}
    values["version"] = version
    fields = {
        "input_names": ArrayAttr([StringAttr(item) for item in input_names]),
        "op_attrs": DictionaryAttr({key: composite_value(values[key]) for key in sorted(values)}),
        "output_names": ArrayAttr([StringAttr(item) for item in output_names]),
    }
    return CompositeDeclarationAttr(StringAttr(name), DictionaryAttr(fields))


class EnumerationAttr(Data[str]):
    """Base of the dialect's enumerations, `#coreai.padding_mode<constant>`."""

    values: tuple[str, ...]

    def __init__(self, data: str | StrEnum):
        if data not in self.values:
            raise ValueError(f"{self.name} is one of {', '.join(self.values)}; got {data!r}")
        super().__init__(str(data))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        with parser.in_angle_brackets():
            return parser.parse_identifier()

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


@cache
def enumeration(name: str, words: tuple[str, ...]) -> type[EnumerationAttr]:
    """The attribute class of an enumeration that rows of the dialect table declare."""
    return irdl_attr_definition(
        type(f"{name.title().replace('_', '')}Attr", (EnumerationAttr,), {"name": f"coreai.{name}", "values": words})
    )


@irdl_attr_definition
class SymbolConstantAttr(ParametrizedAttribute):
    """`#param.constant<@graph> : !param.symbol`: the callee of an invoke."""

    name = "param.constant"
    symbol: SymbolRefAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            symbol = parser.parse_attribute()
        parser.parse_punctuation(":")
        parser.parse_type()
        return [symbol]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.symbol)
        printer.print_string(" : ")
        printer.print_attribute(SYMBOL)


def symbol_constant(name: str) -> SymbolConstantAttr:
    """The callee attribute that names the graph `@name`."""
    symbol = unchecked(SymbolRefAttr, root_reference=unchecked(StringAttr, data=name), nested_references=_NO_SYMBOLS)
    return unchecked(SymbolConstantAttr, symbol=symbol)


_NO_SYMBOLS = ArrayAttr(())


@irdl_attr_definition
class ParameterDeclarationsAttr(BalancedText):
    """`#param.decl.array<[]>`: the type parameters of a graph; patcomp makes none."""

    name = "param.decl.array"
    text: StringAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        (text,) = super().parse_parameters(parser)
        # `coreai.graph` prints what is between the brackets after its name
        if not isinstance(text, StringAttr) or re.fullmatch(r"\[\]|\[<.*>\]", text.data, re.DOTALL) is None:
            parser.raise_error("expected a list of declarations, [] or [<...>]")
        return [text]


NO_PARAMETERS = ParameterDeclarationsAttr(StringAttr("[]"))


@irdl_attr_definition
class SparseEncodingAttr(BalancedText):
    """`#coreai.sparse_tensor_encoding<bitmask, numNonZero = 3, posWidth = 1, crdWidth = 1>`."""

    name = "coreai.sparse_tensor_encoding"
    text: StringAttr

    @classmethod
    def bitmask(cls, count: int) -> SparseEncodingAttr:
        """The encoding of a tensor with `count` stored elements, whose places a bitmask says."""
        return cls(StringAttr(f"bitmask, numNonZero = {count}, posWidth = 1, crdWidth = 1"))


@irdl_attr_definition
class TargetSpecAttr(BalancedText):
    """`#coreai.target_spec<triple = "", soc = "", delegateOptions = {}>`."""

    name = "coreai.target_spec"
    text: StringAttr


@irdl_attr_definition
class HardwareConstraintsAttr(BalancedText):
    """`#coreaix.hw_constraints<MTLBuffer, alignments: [1x1], interleave: [1]>`."""

    name = "coreaix.hw_constraints"
    text: StringAttr


@irdl_attr_definition
class ImageConstraintsAttr(BalancedText):
    """`#coreaix.image_constraints<MTLTexture, rowAlignmentsPerPlane: [64]>`."""

    name = "coreaix.image_constraints"
    text: StringAttr


ATTRIBUTES = (
    CompositeDeclarationAttr,
    SymbolConstantAttr,
    ParameterDeclarationsAttr,
    SparseEncodingAttr,
    TargetSpecAttr,
    HardwareConstraintsAttr,
    ImageConstraintsAttr,
)


def class_of(declared: PropertySlot) -> type[Attribute] | None:
    """The attribute class of a property; None if the row does not state it."""
    if declared.is_position:
        return IntegerAttr
    if declared.words:
        return enumeration(declared.name, declared.words)
    return next((attribute for attribute in ATTRIBUTES if f"#{attribute.name}" == declared.kind), None)


def word_attribute(declared: PropertySlot, word: str | StrEnum) -> Attribute:
    """The attribute for a word of an enumeration.

    Raises:
        ValueError: the enumeration has no such word.
    """
    if not declared.is_position:
        return enumeration(declared.name, declared.words)(word)
    if word not in declared.words:
        raise ValueError(f"{declared.name} is one of {', '.join(declared.words)}; got {word!r}")
    return IntegerAttr(declared.words.index(word), IntegerType(32))


def word_of(declared: PropertySlot, attribute: Attribute) -> str:
    """The word of an enumeration attribute."""
    if isinstance(attribute, IntegerAttr):
        return declared.words[attribute.value.data]
    assert isinstance(attribute, EnumerationAttr)
    return attribute.data

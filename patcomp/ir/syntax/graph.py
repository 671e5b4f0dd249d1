"""The text of `coreai.graph`: keywords, signature with names, attributes, body."""

from __future__ import annotations

from typing import Any

from patcomp.ir.attributes import ParameterDeclarationsAttr
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    DictionaryAttr,
    FunctionType,
    Parser,
    Printer,
    Region,
    StringAttr,
    UnitAttr,
    next_token,
    parse_balanced_text,
)

_GRAPH_KEYWORDS = {"private": "priv", "noinline": "no_inline", "externalize": "externalize"}
_EMPTY = DictionaryAttr({})


def _typed(types: ArrayAttr[Attribute], array: Attribute | None) -> list[tuple[Attribute, DictionaryAttr]]:
    """Each type with the dictionary that belongs to it."""
    dictionaries: Any = array.data if isinstance(array, ArrayAttr) else [_EMPTY] * len(types)
    return list(zip(types, dictionaries, strict=True))


def _print_typed(type_: Attribute, dictionary: DictionaryAttr, printer: Printer) -> None:
    printer.print_attribute(type_)
    if dictionary.data:
        printer.print_string(" ")
        printer.print_attribute(dictionary)


def print_graph(op: CoreaiOp, printer: Printer) -> None:
    properties = op.properties
    signature, declarations, name = properties["function_type"], properties["param_decls"], properties["sym_name"]
    assert isinstance(signature, FunctionType)
    assert isinstance(declarations, ParameterDeclarationsAttr)
    assert isinstance(name, StringAttr)
    for keyword, flag in _GRAPH_KEYWORDS.items():
        if flag in properties:
            printer.print_string(f" {keyword}")
    printer.print_string(" ")
    printer.print_symbol_name(name.data)
    if declarations.text.data != "[]":
        printer.print_string(declarations.text.data.strip("[]"))
    inputs = _typed(signature.inputs, properties.get("arg_attrs"))
    arguments = iter(op.regions[0].block.args if op.regions[0].blocks else ())

    def print_input(typed: tuple[Attribute, DictionaryAttr]) -> None:
        if (argument := next(arguments, None)) is not None:
            printer.print_ssa_value(argument)
            printer.print_string(": ")
        _print_typed(*typed, printer)

    printer.print_string("(")
    printer.print_list(inputs, print_input)
    printer.print_string(")")
    results = _typed(signature.outputs, properties.get("res_attrs"))
    if results:
        parenthesised = len(results) > 1 or bool(results[0][1].data)
        printer.print_string(" -> (" if parenthesised else " -> ")
        printer.print_list(results, lambda typed: _print_typed(*typed, printer))
        printer.print_string(")" if parenthesised else "")
    extra = dict(op.attributes)
    if "composite_decl" in properties:
        extra["composite_decl"] = properties["composite_decl"]
    if extra:
        printer.print_string(" attributes ")
        printer.print_attr_dict({key: extra[key] for key in sorted(extra)})
    if op.regions[0].blocks:
        printer.print_string(" ")
        printer.print_region(op.regions[0], print_entry_block_args=False, print_empty_block=False)


def parse_graph(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    properties: dict[str, Attribute] = {}
    while (keyword := parser.parse_optional_keyword_in(_GRAPH_KEYWORDS)) is not None:
        properties[_GRAPH_KEYWORDS[keyword]] = UnitAttr()
    properties["sym_name"] = parser.parse_symbol_name()
    declarations = "[]"
    if next_token(parser) == "<":
        declarations = f"[<{parse_balanced_text(parser)}>]"
    properties["param_decls"] = ParameterDeclarationsAttr(StringAttr(declarations))

    def parse_argument() -> tuple[Any, Attribute, DictionaryAttr]:
        argument = parser.parse_optional_argument()
        type_ = argument.type if argument else parser.parse_type()
        return argument, type_, DictionaryAttr(parser.parse_optional_attr_dict())

    def parse_result() -> tuple[Attribute, DictionaryAttr]:
        return parser.parse_type(), DictionaryAttr(parser.parse_optional_attr_dict())

    arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_argument)
    results: list[tuple[Attribute, DictionaryAttr]] = []
    if parser.parse_optional_punctuation("->") is not None:
        if next_token(parser) == "(":
            results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_result)
        else:
            results = [(parser.parse_type(), _EMPTY)]
    inputs = [type_ for _, type_, _ in arguments]
    properties["function_type"] = FunctionType.from_lists(inputs, [type_ for type_, _ in results])
    for name, dictionaries in (
        ("arg_attrs", [attributes for *_, attributes in arguments]),
        ("res_attrs", [attributes for _, attributes in results]),
    ):
        if any(dictionary.data for dictionary in dictionaries):
            properties[name] = ArrayAttr(dictionaries)
    attributes: dict[str, Attribute] = {}
    if parser.parse_optional_keyword("attributes") is not None:
        attributes = dict(parser.parse_optional_attr_dict())
    if "composite_decl" in attributes:
        properties["composite_decl"] = attributes.pop("composite_decl")
    named = [argument for argument, _, _ in arguments if argument is not None]
    region = parser.parse_region(named) if next_token(parser) == "{" else Region()
    ordered = {key: properties[key] for key in sorted(properties)}
    return op_class.create(properties=ordered, attributes=attributes, regions=[region])

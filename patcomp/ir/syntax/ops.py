"""The text of ops that print their operands, attributes and types in a line of their own pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from patcomp.ir.attributes import word_attribute, word_of
from patcomp.ir.syntax.pieces import (
    Form,
    finish,
    parse_operands,
    parse_result_types,
    parse_type,
    parse_type_list,
    print_discardable,
    print_list,
    print_results,
    print_type,
    print_types,
    string_property,
)
from patcomp.ir.types import ImageType
from patcomp.ir.xdsl import Attribute, Parser, Printer, StringAttr

if TYPE_CHECKING:
    from patcomp.ir.dialect import CoreaiOp


def _print_enumerations(op: CoreaiOp, printer: Printer) -> None:
    for declared in op.ROW.properties:
        attribute = op.properties.get(declared.name)
        if declared.words and attribute is not None and (word := word_of(declared, attribute)) != declared.default:
            printer.print_string(f" {declared.keyword} = <{word}>")


def _parse_enumerations(parser: Parser, op_class: type[CoreaiOp]) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for declared in op_class.ROW.properties:
        if parser.parse_optional_keyword(declared.keyword) is not None:
            parser.parse_punctuation("=")
            with parser.in_angle_brackets():
                found[declared.name] = word_attribute(declared, parser.parse_identifier())
        elif declared.default is not None:
            found[declared.name] = word_attribute(declared, declared.default)
    return found


def print_functional(op: CoreaiOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        print_list(printer, op.operands)
    _print_enumerations(op, printer)
    printer.print_string(" : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)
    print_discardable(op, printer)


def parse_functional(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operands = parse_operands(parser)
    properties = _parse_enumerations(parser, op_class)
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    return finish(parser, op_class, operands, operand_types, parse_result_types(parser), properties)


def print_call(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string("(")
    print_list(printer, op.operands)
    printer.print_string(") : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)
    print_discardable(op, printer)


def parse_call(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operands = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    return finish(parser, op_class, operands, operand_types, parse_result_types(parser))


# ---- `%a : T -> U` --------------------------------------------------------------------------------


def print_unary(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    _print_enumerations(op, printer)
    printer.print_string(" : ")
    print_type(op.operands[0].type, printer)
    printer.print_string(" -> ")
    print_type(op.results[0].type, printer)
    print_discardable(op, printer)


def parse_unary(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operand = parser.parse_unresolved_operand()
    properties = _parse_enumerations(parser, op_class)
    parser.parse_punctuation(":")
    operand_type = parse_type(parser, ImageType)
    parser.parse_punctuation("->")
    return finish(parser, op_class, [operand], [operand_type], [parse_type(parser, ImageType)], properties)


# ---- `%a at %b along %c : (T, U, V) to W` ---------------------------------------------------------


def to_form(template: str) -> Form:
    """A form whose operands stand in a template and whose result type follows `to`.

    `{}` is an operand; the words and parentheses between operands print as they stand.
    """
    pieces = template.split("{}")

    def print_op(op: CoreaiOp, printer: Printer) -> None:
        printer.print_string(" ")
        for piece, operand in zip(pieces, op.operands, strict=False):
            printer.print_string(piece)
            printer.print_ssa_value(operand)
        printer.print_string(pieces[-1] + " : ")
        print_types([operand.type for operand in op.operands], printer)
        printer.print_string(" to ")
        printer.print_attribute(op.results[0].type)
        print_discardable(op, printer)

    def parse_piece(parser: Parser, piece: str) -> None:
        for word in re.findall(r"\w+|[^\w\s]", piece):
            parser.parse_keyword(word) if word.isalpha() else parser.parse_punctuation(word)

    def parse_op(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
        operands = []
        for piece in pieces[:-1]:
            parse_piece(parser, piece)
            operands.append(parser.parse_unresolved_operand())
        parse_piece(parser, pieces[-1])
        parser.parse_punctuation(":")
        operand_types = parse_type_list(parser)
        parser.parse_keyword("to")
        return finish(parser, op_class, operands, operand_types, [parser.parse_type()])

    return Form(print_op, parse_op)


def print_cast(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    printer.print_string(" : ")
    printer.print_attribute(op.operands[0].type)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)
    print_discardable(op, printer)


def parse_cast(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operand = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    operand_type = parser.parse_type()
    parser.parse_keyword("to")
    return finish(parser, op_class, [operand], [operand_type], [parser.parse_type()])


# ---- attributes in braces: interpolate, delegate, metal4_kernel -----------------------------------


def print_braced(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    print_list(printer, op.operands)
    printer.print_string(" ")
    printer.print_attr_dict(op.properties)
    printer.print_string(" : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)
    print_discardable(op, printer)


def parse_braced(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operands = parse_operands(parser)
    properties = dict(parser.parse_optional_attr_dict())
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    return finish(parser, op_class, operands, operand_types, parse_result_types(parser), properties)


def print_delegate(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(f'<"{string_property(op, "delegate_id")}">(')
    print_list(printer, op.operands)
    printer.print_string(") ")
    printer.print_attr_dict({key: value for key, value in op.properties.items() if key != "delegate_id"})
    printer.print_string(" : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)


def parse_delegate(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    with parser.in_angle_brackets():
        delegate = StringAttr(parser.parse_str_literal())
    operands = parser.parse_op_args_list()
    properties = {"delegate_id": delegate, **parser.parse_optional_attr_dict()}
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    return finish(parser, op_class, operands, operand_types, parse_result_types(parser), properties)


def print_metal(op: CoreaiOp, printer: Printer) -> None:
    arguments, grid, group, shapes = op.operands_by_slot()
    printer.print_string(" kernel_args(")
    print_list(printer, arguments)
    printer.print_string("), threads_per_grid ")
    print_list(printer, grid)
    printer.print_string(", threads_per_thread_group ")
    print_list(printer, group)
    printer.print_string(", result_shapes(")
    print_list(printer, shapes)
    printer.print_string(") ")
    printer.print_attr_dict({key: value for key, value in op.properties.items() if key != "operandSegmentSizes"})
    printer.print_string(" : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)


def parse_metal(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    parser.parse_keyword("kernel_args")
    arguments = parser.parse_op_args_list()
    parser.parse_punctuation(",")
    parser.parse_keyword("threads_per_grid")
    grid = parser.parse_unresolved_operand()
    parser.parse_punctuation(",")
    parser.parse_keyword("threads_per_thread_group")
    group = parser.parse_unresolved_operand()
    parser.parse_punctuation(",")
    parser.parse_keyword("result_shapes")
    shapes = parser.parse_op_args_list()
    properties = dict(parser.parse_optional_attr_dict())
    properties["operandSegmentSizes"] = op_class.segment_sizes([len(arguments), 1, 1, len(shapes)])
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    operands = [*arguments, grid, group, *shapes]
    return finish(parser, op_class, operands, operand_types, parse_result_types(parser), properties)

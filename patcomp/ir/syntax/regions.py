"""The text of ops with regions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from patcomp.ir.syntax.pieces import (
    Form,
    finish,
    parse_operands,
    parse_result_types,
    parse_type_list,
    print_list,
    print_region,
    print_results,
    print_types,
    string_property,
)
from patcomp.ir.xdsl import Parser, Printer, Region, StringAttr

if TYPE_CHECKING:
    from patcomp.ir.dialect import CoreaiOp


def print_if(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    print_region(op.regions[0], printer)
    if op.regions[1].blocks:
        printer.print_string(" else")
        print_region(op.regions[1], printer)
    printer.print_string(" : ")
    printer.print_attribute(op.operands[0].type)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)


def parse_if(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    condition = parser.parse_unresolved_operand()
    then = parser.parse_region()
    otherwise = parser.parse_region() if parser.parse_optional_keyword("else") is not None else Region()
    parser.parse_punctuation(":")
    condition_type = parser.parse_type()
    parser.parse_punctuation("->")
    results = parse_result_types(parser)
    return finish(parser, op_class, [condition], [condition_type], results, regions=[then, otherwise])


def print_while(op: CoreaiOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        print_list(printer, op.operands)
    print_region(op.regions[0], printer)
    printer.print_string(" do")
    print_region(op.regions[1], printer)
    printer.print_string(" : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_types([result.type for result in op.results], printer)


def parse_while(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operands = parse_operands(parser)
    before = parser.parse_region()
    parser.parse_keyword("do")
    after = parser.parse_region()
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    results = parse_result_types(parser)
    return finish(parser, op_class, operands, operand_types, results, regions=[before, after])


def region_form(template: str, arrow: str) -> Form:
    """Operands in a template, then one region, then the signature: reduce, reduce_index, scatter_nd."""
    pieces = template.split("{}")

    def print_op(op: CoreaiOp, printer: Printer) -> None:
        printer.print_string(" ")
        for piece, operand in zip(pieces, op.operands, strict=False):
            printer.print_string(piece)
            printer.print_ssa_value(operand)
        print_region(op.regions[0], printer)
        printer.print_string(" : ")
        print_types([operand.type for operand in op.operands], printer)
        printer.print_string(f" {arrow} ")
        print_results([result.type for result in op.results], printer)

    def parse_op(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
        operands = []
        for piece in pieces[:-1]:
            for word in re.findall(r"\w+|[^\w\s]", piece):
                parser.parse_keyword(word) if word[0].isalpha() else parser.parse_punctuation(word)
            operands.append(parser.parse_unresolved_operand())
        region = parser.parse_region()
        parser.parse_punctuation(":")
        operand_types = parse_type_list(parser)
        parser.parse_punctuation("->") if arrow == "->" else parser.parse_keyword(arrow)
        results = parse_result_types(parser)
        return finish(parser, op_class, operands, operand_types, results, regions=[region])

    return Form(print_op, parse_op)


def print_scatter_nd(op: CoreaiOp, printer: Printer) -> None:
    data, indices, updates = op.operands
    printer.print_string(" ")
    printer.print_ssa_value(data)
    printer.print_string(" with ")
    printer.print_ssa_value(updates)
    printer.print_string(" at ")
    printer.print_ssa_value(indices)
    print_region(op.regions[0], printer)
    printer.print_string(" : ")
    print_types([data.type, updates.type, indices.type], printer)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)


def parse_scatter_nd(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    data = parser.parse_unresolved_operand()
    parser.parse_keyword("with")
    updates = parser.parse_unresolved_operand()
    parser.parse_keyword("at")
    indices = parser.parse_unresolved_operand()
    region = parser.parse_region()
    parser.parse_punctuation(":")
    data_type, updates_type, indices_type = parse_type_list(parser)
    parser.parse_keyword("to")
    operands, types = [data, indices, updates], [data_type, indices_type, updates_type]
    return finish(parser, op_class, operands, types, [parser.parse_type()], regions=[region])


def print_isolated_group(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(f'<"{string_property(op, "delegate_id")}">(')
    print_list(printer, op.operands)
    printer.print_string(") : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)
    print_region(op.regions[0], printer)


def parse_isolated_group(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    with parser.in_angle_brackets():
        delegate = StringAttr(parser.parse_str_literal())
    operands = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    results = parse_result_types(parser)
    region = parser.parse_region()
    return finish(parser, op_class, operands, operand_types, results, {"delegate_id": delegate}, [region])

"""The text of constants, tokens, calls, targets, terminators and slice updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from patcomp.ir.attributes import EnumerationAttr, SymbolConstantAttr, TargetSpecAttr, word_attribute
from patcomp.ir.syntax.pieces import (
    finish,
    parse_operands,
    parse_result_types,
    parse_type_list,
    print_discardable,
    print_list,
    print_results,
    print_types,
)
from patcomp.ir.types import TOKEN
from patcomp.ir.xdsl import Attribute, DenseResourceAttr, Parser, Printer, SymbolRefAttr, TypedAttribute

if TYPE_CHECKING:
    from patcomp.ir.dialect import CoreaiOp


def print_constant(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_attribute(op.properties["value"])
    print_discardable(op, printer)


def parse_constant(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    value = parser.parse_attribute()
    if not isinstance(value, TypedAttribute | DenseResourceAttr):
        parser.raise_error("a coreai.constant needs a typed attribute")
    return finish(parser, op_class, [], [], [value.get_type()], {"value": value})


def print_create_token(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" : ")
    printer.print_attribute(TOKEN)


def parse_create_token(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    parser.parse_punctuation(":")
    return finish(parser, op_class, [], [], [parser.parse_type()])


def print_invoke(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    callee = op.properties["callee"]
    assert isinstance(callee, SymbolConstantAttr)
    printer.print_attribute(callee.symbol)
    printer.print_string("(")
    print_list(printer, op.operands)
    printer.print_string(")  : ")
    print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    print_results([result.type for result in op.results], printer)
    print_discardable(op, printer)


def parse_invoke(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    symbol = parser.parse_attribute()
    if not isinstance(symbol, SymbolRefAttr):
        parser.raise_error("a coreai.invoke needs the symbol of a graph")
    operands = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    operand_types = parse_type_list(parser)
    parser.parse_punctuation("->")
    return finish(
        parser, op_class, operands, operand_types, parse_result_types(parser), {"callee": SymbolConstantAttr(symbol)}
    )


def print_target_spec(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string("{spec = ")
    spec, compilation = op.properties["spec"], op.properties.get("compilation")
    assert isinstance(spec, TargetSpecAttr)
    spec.print_parameters(printer)
    if isinstance(compilation, EnumerationAttr):
        printer.print_string(", compilation = ")
        compilation.print_parameter(printer)
    printer.print_string("}")


def parse_target_spec(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    properties: dict[str, Attribute] = {}
    with parser.in_braces():
        parser.parse_keyword("spec")
        parser.parse_punctuation("=")
        properties["spec"] = TargetSpecAttr.new(TargetSpecAttr.parse_parameters(parser))
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("compilation")
            parser.parse_punctuation("=")
            declared = next(item for item in op_class.ROW.properties if item.name == "compilation")
            properties["compilation"] = word_attribute(declared, EnumerationAttr.parse_parameter(parser))
    return finish(parser, op_class, [], [], [], properties)


# ---- terminators ----------------------------------------------------------------------------------


def print_terminator(op: CoreaiOp, printer: Printer) -> None:
    if not op.operands:
        return
    printer.print_string(" ")
    print_list(printer, op.operands)
    printer.print_string(" : ")
    types = [operand.type for operand in op.operands]
    if op.name == "coreai.condition":
        print_types(types, printer)
    else:
        printer.print_list(types, printer.print_attribute)


def parse_terminator(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    operands = parse_operands(parser)
    types: list[Attribute] = []
    if operands:
        parser.parse_punctuation(":")
        if op_class.name == "coreai.condition":
            types = parse_type_list(parser)
        else:
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return finish(parser, op_class, operands, types, [])


def print_slice_update(op: CoreaiOp, printer: Printer) -> None:
    data, start, end, strides, update = op.operands
    printer.print_string(" ")
    printer.print_ssa_value(data)
    printer.print_string(" with ")
    printer.print_ssa_value(update)
    printer.print_string(" at (")
    print_list(printer, [start, end, strides])
    printer.print_string(") : ")
    print_types([value.type for value in (data, update, start, end, strides)], printer)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)
    print_discardable(op, printer)


def parse_slice_update(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    data = parser.parse_unresolved_operand()
    parser.parse_keyword("with")
    update = parser.parse_unresolved_operand()
    parser.parse_keyword("at")
    start, end, strides = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    data_type, update_type, *index_types = parse_type_list(parser)
    parser.parse_keyword("to")
    operands, types = [data, start, end, strides, update], [data_type, *index_types, update_type]
    return finish(parser, op_class, operands, types, [parser.parse_type()])

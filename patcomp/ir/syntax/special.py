"""The text of constants, targets and terminators."""

from __future__ import annotations

from patcomp.ir.attributes import EnumerationAttr, TargetSpecAttr, word_attribute
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.syntax.template import ParsedOp, parse_types, parse_values, print_attributes, print_types, print_values
from patcomp.ir.xdsl import DenseResourceAttr, Parser, Printer, TypedAttribute


def print_constant(op: CoreaiOp, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_attribute(op.properties["value"])
    print_attributes(op, printer)


def parse_constant(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    value = parser.parse_attribute()
    if not isinstance(value, TypedAttribute | DenseResourceAttr):
        parser.raise_error("a coreai.constant needs a typed attribute")
    return ParsedOp(parser, op_class.ROW, results=[value.get_type()], properties={"value": value}).finish(op_class)


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
    parsed = ParsedOp(parser, op_class.ROW)
    with parser.in_braces():
        parser.parse_keyword("spec")
        parser.parse_punctuation("=")
        parsed.properties["spec"] = TargetSpecAttr.new(TargetSpecAttr.parse_parameters(parser))
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("compilation")
            parser.parse_punctuation("=")
            declared = next(item for item in op_class.ROW.properties if item.name == "compilation")
            parsed.properties["compilation"] = word_attribute(declared, EnumerationAttr.parse_parameter(parser))
    return parsed.finish(op_class)


def print_terminator(op: CoreaiOp, printer: Printer) -> None:
    if not op.operands:
        return
    printer.print_string(" ")
    print_values(op.operands, printer)
    printer.print_string(" : ")
    types = [operand.type for operand in op.operands]
    if op.name == "coreai.condition":
        print_types(types, printer)
    else:
        printer.print_list(types, printer.print_attribute)


def parse_terminator(parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
    parsed = ParsedOp(parser, op_class.ROW, operands=parse_values(parser))
    if parsed.operands:
        parser.parse_punctuation(":")
        if op_class.name == "coreai.condition":
            parsed.types = parse_types(parser)
        else:
            parsed.types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return parsed.finish(op_class)

"""Pieces of text that several ops share: operand lists, types, attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patcomp.ir.types import HandleType, ImageType
from patcomp.ir.xdsl import Attribute, Operation, Parser, Printer, Region, SSAValue, StringAttr, UnresolvedOperand

if TYPE_CHECKING:
    from patcomp.ir.dialect import CoreaiOp


@dataclass(frozen=True)
class Form:
    """A pair of functions: print what follows the op's name, and parse it back."""

    print: Callable[[CoreaiOp, Printer], None]
    parse: Callable[[Parser, type[CoreaiOp]], CoreaiOp]


def print_list(printer: Printer, values: Sequence[SSAValue]) -> None:
    """Values, separated by commas."""
    printer.print_list(values, printer.print_ssa_value)


def parse_operands(parser: Parser) -> list[UnresolvedOperand]:
    """Operands, separated by commas; none is fine."""
    return (
        parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        or []
    )


def print_discardable(op: CoreaiOp, printer: Printer) -> None:
    """The op's attributes in braces, if it has any."""
    if op.attributes:
        printer.print_string(" ")
        printer.print_attr_dict(op.attributes)


def print_type(type_: Attribute, printer: Printer) -> None:
    """Handles and images lose their `!coreai.x` prefix inside an op's signature, as in the toolchain."""
    if isinstance(type_, HandleType | ImageType):
        type_.print_parameters(printer)
    else:
        printer.print_attribute(type_)


def parse_type(parser: Parser, abbreviated: type[HandleType] | type[ImageType] = HandleType) -> Attribute:
    """A type whose prefix may be left out."""
    if parser._current_token.text.startswith("<"):
        return abbreviated.new(abbreviated.parse_parameters(parser))
    return parser.parse_type()


def print_types(types: Sequence[Attribute], printer: Printer) -> None:
    """Types in parentheses."""
    printer.print_string("(")
    printer.print_list(types, lambda type_: print_type(type_, printer))
    printer.print_string(")")


def print_results(types: Sequence[Attribute], printer: Printer) -> None:
    """Result types, in parentheses unless there is one."""
    if len(types) == 1:
        print_type(types[0], printer)
    else:
        print_types(types, printer)


def parse_type_list(parser: Parser) -> list[Attribute]:
    """Types in parentheses."""
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_type(parser))


def parse_result_types(parser: Parser) -> list[Attribute]:
    """Result types, in parentheses unless there is one."""
    if parser._current_token.text == "(":
        return parse_type_list(parser)
    return [parse_type(parser)]


def finish(
    parser: Parser,
    op_class: type[CoreaiOp],
    operands: Sequence[UnresolvedOperand],
    operand_types: Sequence[Attribute],
    result_types: Sequence[Attribute],
    properties: dict[str, Attribute] | None = None,
    regions: Sequence[Region] = (),
) -> CoreaiOp:
    """The op of what was parsed, and of the attributes that may follow."""
    attributes = dict(parser.parse_optional_attr_dict())
    return op_class.create(
        operands=parser.resolve_operands(operands, operand_types, parser.pos),
        result_types=result_types,
        properties=properties or {},
        attributes=attributes,
        regions=regions,
    )


def print_region(region: Region, printer: Printer) -> None:
    """A region after a space."""
    printer.print_string(" ")
    printer.print_region(region)


def string_property(op: Operation, name: str) -> str:
    """The text of a string property."""
    attribute = op.properties[name]
    assert isinstance(attribute, StringAttr)
    return attribute.data

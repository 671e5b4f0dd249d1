"""The text of an op as a template, from which the op is printed and parsed.

    " {input} at {indices} along {axis} : {types} to {results}{ attributes}"

Text outside braces is printed as it is; the parser expects its words and punctuation. Braces hold the name of an
operand or region of the op's row, or one of these pieces:

| piece | text |
|---|---|
| `{operands}` | all operands, separated by commas |
| `{ words}` | ` mode = <constant>` for each enumeration whose value is not the default |
| `{properties}` | the properties as a dictionary |
| `{delegate}`, `{callee}` | the property of this meaning: `<"name">`, `@graph` |
| `{types}` | the types of the operands, in the order of the text, in parentheses |
| `{results}`, `{(results)}` | the result types: in parentheses unless there is one, or always |
| `{type}`, `{result}` | the type of the only operand or result, which may be an image |
| `{ attributes}` | the op's attributes as a dictionary, if there are any |

A space after the opening brace is printed only if something follows it. `{ else NAME}` is a region that may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from patcomp.ir.attributes import SymbolConstantAttr, word_attribute, word_of
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.rows import Row
from patcomp.ir.types import HandleType, ImageType
from patcomp.ir.xdsl import (
    Attribute,
    Parser,
    Printer,
    Region,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    UnresolvedOperand,
    next_token,
)

_NOT_PRINTED = ("delegate_id", "operandSegmentSizes")
"""Properties that `{properties}` leaves out: another piece prints them, or they follow from the operands."""


@dataclass
class ParsedOp:
    """The parts of an op that have been parsed so far."""

    parser: Parser
    row: Row
    operands: list[UnresolvedOperand] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    """The name of each operand, if the template names operands."""
    types: list[Attribute] = field(default_factory=list)
    results: list[Attribute] = field(default_factory=list)
    properties: dict[str, Attribute] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)

    def finish(self, op_class: type[CoreaiOp]) -> CoreaiOp:
        """The op, with the attributes that may follow."""
        attributes = dict(self.parser.parse_optional_attr_dict())
        values = self.parser.resolve_operands(self.operands, self.types, self.parser.pos)
        if self.slots:
            named = list(zip(self.slots, values, strict=True))
            groups = [[value for name, value in named if name == slot.name] for slot in self.row.operands]
            values = list(chain.from_iterable(groups))
            if sum(slot.variadic for slot in self.row.operands) > 1:
                self.properties["operandSegmentSizes"] = op_class.segment_sizes(list(map(len, groups)))
        return op_class.create(
            operands=values,
            result_types=self.results,
            properties=self.properties,
            attributes=attributes,
            regions=self.regions,
        )


@dataclass(frozen=True)
class Piece:
    """A part of a template: print it, and parse it back."""

    print: Callable[[CoreaiOp, Printer], None]
    parse: Callable[[ParsedOp], Any]


class Template:
    """The text of the ops of a row."""

    def __init__(self, text: str, row: Row):
        self.slots = [name for name in re.findall(r"{(\w+)}", text) if name in {slot.name for slot in row.operands}]
        self.pieces = [self._piece(part, row) for part in re.split(r"({[^}]*})", text) if part]

    def print(self, op: CoreaiOp, printer: Printer) -> None:
        """Print what follows the op's name."""
        for piece in self.pieces:
            piece.print(op, printer)

    def parse(self, parser: Parser, op_class: type[CoreaiOp]) -> CoreaiOp:
        """Parse what follows the op's name."""
        parsed = ParsedOp(parser, op_class.ROW)
        for piece in self.pieces:
            piece.parse(parsed)
        return parsed.finish(op_class)

    def _piece(self, part: str, row: Row) -> Piece:
        name = part.strip("{} ")
        if part[0] != "{":
            return _literal(part)
        if part == "{types}":
            return Piece(
                lambda op, printer: print_types(_types(self._in_text_order(op)), printer),
                lambda parsed: parsed.types.extend(parse_types(parsed.parser)),
            )
        if name in self.slots:
            return _operand(name, next(slot.variadic for slot in row.operands if slot.name == name))
        regions = [region for region, _ in row.regions]
        if name in regions:
            return _region(regions.index(name))
        if name.startswith("else "):
            return _optional_region(regions.index(name.removeprefix("else ")))
        return _PIECES[part]

    def _in_text_order(self, op: CoreaiOp) -> Sequence[SSAValue]:
        """The operands in the order of the text."""
        if not self.slots:
            return op.operands
        groups = dict(zip((slot.name for slot in op.ROW.operands), op.operands_by_slot(), strict=True))
        return [value for name in self.slots for value in groups[name]]


# ---- pieces ---------------------------------------------------------------------------------------


def _types(values: Sequence[SSAValue]) -> list[Attribute]:
    return [value.type for value in values]


def print_values(values: Sequence[SSAValue], printer: Printer) -> None:
    """Print values, separated by commas."""
    printer.print_list(values, printer.print_ssa_value)


def parse_values(parser: Parser) -> list[UnresolvedOperand]:
    """Parse values separated by commas; there may be none."""
    optional, required = parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
    return parser.parse_optional_undelimited_comma_separated_list(optional, required) or []


def print_type(type_: Attribute, printer: Printer) -> None:
    """Print a type; handles and images lose their `!coreai.x` prefix, as in the toolchain."""
    if isinstance(type_, HandleType | ImageType):
        type_.print_parameters(printer)
    else:
        printer.print_attribute(type_)


def _parse_type(parser: Parser, abbreviated: type[HandleType] | type[ImageType] = HandleType) -> Attribute:
    """Parse a type whose prefix may be missing."""
    if next_token(parser).startswith("<"):
        return abbreviated.new(abbreviated.parse_parameters(parser))
    return parser.parse_type()


def print_types(types: Sequence[Attribute], printer: Printer) -> None:
    """Print types in parentheses."""
    printer.print_string("(")
    printer.print_list(types, lambda type_: print_type(type_, printer))
    printer.print_string(")")


def parse_types(parser: Parser) -> list[Attribute]:
    """Parse types in parentheses."""
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_type(parser))


def _print_result_types(op: CoreaiOp, printer: Printer) -> None:
    if len(op.results) == 1:
        print_type(op.results[0].type, printer)
    else:
        print_types(_types(op.results), printer)


def _parse_results(parsed: ParsedOp) -> None:
    parser = parsed.parser
    parsed.results += parse_types(parser) if next_token(parser) == "(" else [_parse_type(parser)]


def _literal(text: str) -> Piece:
    tokens: list[Any] = re.findall(r"\w+|->|[^\w\s]", text)

    def parse(parsed: ParsedOp) -> None:
        for token in tokens:
            parsed.parser.parse_keyword(token) if token[0].isalpha() else parsed.parser.parse_punctuation(token)

    return Piece(lambda op, printer: printer.print_string(text), parse)


def _operand(name: str, variadic: bool) -> Piece:
    def print_(op: CoreaiOp, printer: Printer) -> None:
        position = [slot.name for slot in op.ROW.operands].index(name)
        print_values(op.operands_by_slot()[position], printer)

    def parse(parsed: ParsedOp) -> None:
        found = parse_values(parsed.parser) if variadic else [parsed.parser.parse_unresolved_operand()]
        parsed.operands += found
        parsed.slots += [name] * len(found)

    return Piece(print_, parse)


def _print_spaced_region(region: Region, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_region(region)


def _region(index: int) -> Piece:
    return Piece(
        lambda op, printer: _print_spaced_region(op.regions[index], printer),
        lambda parsed: parsed.regions.append(parsed.parser.parse_region()),
    )


def _optional_region(index: int) -> Piece:
    def print_(op: CoreaiOp, printer: Printer) -> None:
        if op.regions[index].blocks:
            printer.print_string(" else")
            _print_spaced_region(op.regions[index], printer)

    def parse(parsed: ParsedOp) -> None:
        is_there = parsed.parser.parse_optional_keyword("else") is not None
        parsed.regions.append(parsed.parser.parse_region() if is_there else Region())

    return Piece(print_, parse)


def _print_spaced_operands(op: CoreaiOp, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        print_values(op.operands, printer)


def _print_words(op: CoreaiOp, printer: Printer) -> None:
    for declared in op.ROW.properties:
        attribute = op.properties.get(declared.name)
        if declared.words and attribute is not None and (word := word_of(declared, attribute)) != declared.default:
            printer.print_string(f" {declared.keyword} = <{word}>")


def _parse_words(parsed: ParsedOp) -> None:
    parser = parsed.parser
    for declared in parsed.row.properties:
        if parser.parse_optional_keyword(declared.keyword) is not None:
            parser.parse_punctuation("=")
            with parser.in_angle_brackets():
                parsed.properties[declared.name] = word_attribute(declared, parser.parse_identifier())
        elif declared.default is not None:
            parsed.properties[declared.name] = word_attribute(declared, declared.default)


def _print_properties(op: CoreaiOp, printer: Printer) -> None:
    printer.print_attr_dict({name: value for name, value in op.properties.items() if name not in _NOT_PRINTED})


def _print_delegate(op: CoreaiOp, printer: Printer) -> None:
    delegate = op.properties["delegate_id"]
    assert isinstance(delegate, StringAttr)
    printer.print_string(f'<"{delegate.data}">')


def _parse_delegate(parsed: ParsedOp) -> None:
    with parsed.parser.in_angle_brackets():
        parsed.properties["delegate_id"] = StringAttr(parsed.parser.parse_str_literal())


def _print_callee(op: CoreaiOp, printer: Printer) -> None:
    callee = op.properties["callee"]
    assert isinstance(callee, SymbolConstantAttr)
    printer.print_attribute(callee.symbol)


def _parse_callee(parsed: ParsedOp) -> None:
    symbol = parsed.parser.parse_attribute()
    if not isinstance(symbol, SymbolRefAttr):
        parsed.parser.raise_error("a coreai.invoke needs the symbol of a graph")
    parsed.properties["callee"] = SymbolConstantAttr(symbol)


def print_attributes(op: CoreaiOp, printer: Printer) -> None:
    """Print the op's attributes after a space, if it has any."""
    if op.attributes:
        printer.print_string(" ")
        printer.print_attr_dict(op.attributes)


def _parse_operands(parsed: ParsedOp) -> None:
    parsed.operands += parse_values(parsed.parser)


_PIECES: dict[str, Piece] = {
    "{operands}": Piece(lambda op, printer: print_values(op.operands, printer), _parse_operands),
    "{ operands}": Piece(_print_spaced_operands, _parse_operands),
    "{ words}": Piece(_print_words, _parse_words),
    "{properties}": Piece(
        _print_properties, lambda parsed: parsed.properties.update(parsed.parser.parse_optional_attr_dict())
    ),
    "{delegate}": Piece(_print_delegate, _parse_delegate),
    "{callee}": Piece(_print_callee, _parse_callee),
    "{results}": Piece(_print_result_types, _parse_results),
    "{(results)}": Piece(lambda op, printer: print_types(_types(op.results), printer), _parse_results),
    "{type}": Piece(
        lambda op, printer: print_type(op.operands[0].type, printer),
        lambda parsed: parsed.types.append(_parse_type(parsed.parser, ImageType)),
    ),
    "{result}": Piece(
        lambda op, printer: print_type(op.results[0].type, printer),
        lambda parsed: parsed.results.append(_parse_type(parsed.parser, ImageType)),
    ),
    "{ attributes}": Piece(print_attributes, lambda parsed: None),  # `ParsedOp.finish` parses them after every op
}

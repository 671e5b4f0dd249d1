"""How `coreai` ops look in text: one printer and one parser for each form that the dialect table names.

The forms are those of the real toolchain, so that text goes through its parser unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from patcomp.ir.attributes import SCAN_OPS, SymbolConstantAttr
from patcomp.ir.types import TOKEN, HandleType, ImageType
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    DenseResourceAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    IntegerType,
    Operation,
    Parser,
    Printer,
    Region,
    SSAValue,
    StringAttr,
    TypedAttribute,
    UnitAttr,
    UnresolvedOperand,
)

OpClass = TypeVar("OpClass", bound=type[Operation])


@dataclass(frozen=True)
class Form:
    """A pair of functions: print what follows the op's name, and parse it back."""

    print: Callable[[Operation, Printer], None]
    parse: Callable[[Parser, type[Operation]], Operation]


# ---- pieces that several forms use ---------------------------------------------------------------


def _print_list(printer: Printer, values: Sequence[SSAValue]) -> None:
    printer.print_list(values, printer.print_ssa_value)


def _parse_operands(parser: Parser) -> list[UnresolvedOperand]:
    return (
        parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        or []
    )


def _print_discardable(op: Operation, printer: Printer) -> None:
    if op.attributes:
        printer.print_string(" ")
        printer.print_attr_dict(op.attributes)


def _print_type(type_: Attribute, printer: Printer) -> None:
    """Handles and images lose their `!coreai.x` prefix inside an op's signature, as in the toolchain."""
    if isinstance(type_, HandleType | ImageType):
        type_.print_parameters(printer)
    else:
        printer.print_attribute(type_)


def _parse_type(parser: Parser, abbreviated: type[HandleType] | type[ImageType] = HandleType) -> Attribute:
    if parser._current_token.text.startswith("<"):
        return abbreviated.new(abbreviated.parse_parameters(parser))
    return parser.parse_type()


def _print_types(types: Sequence[Attribute], printer: Printer) -> None:
    printer.print_string("(")
    printer.print_list(types, lambda type_: _print_type(type_, printer))
    printer.print_string(")")


def _print_results(types: Sequence[Attribute], printer: Printer) -> None:
    if len(types) == 1:
        _print_type(types[0], printer)
    else:
        _print_types(types, printer)


def _parse_type_list(parser: Parser) -> list[Attribute]:
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_type(parser))


def _parse_result_types(parser: Parser) -> list[Attribute]:
    if parser._current_token.text == "(":
        return _parse_type_list(parser)
    return [_parse_type(parser)]


def _finish(
    parser: Parser,
    op_class: type[Operation],
    operands: Sequence[UnresolvedOperand],
    operand_types: Sequence[Attribute],
    result_types: Sequence[Attribute],
    properties: dict[str, Attribute] | None = None,
    regions: Sequence[Region] = (),
) -> Operation:
    attributes = dict(parser.parse_optional_attr_dict())
    return op_class.create(
        operands=parser.resolve_operands(operands, operand_types, parser.pos),
        result_types=result_types,
        properties=properties or {},
        attributes=attributes,
        regions=regions,
    )


# ---- `%a, %b : (T, U) -> V`, with an enumeration before the colon ---------------------------------


def _enumeration_keyword(op_class: type[Operation]) -> tuple[str, str] | None:
    """The keyword and property name of the op's enumeration, printed as `mode = <constant>`."""
    return {
        "coreai.gelu": ("approximate", "approximate"),
        "coreai.pad": ("mode", "padding_mode"),
        "coreai.scan": ("combiner", "scan_op"),
        "coreai.scatter_along_axis": ("scatter_mode", "scatter_mode"),
    }.get(op_class.name)


_DEFAULTS = {"approximate": "none", "scatter_mode": "update"}


def _print_enumeration(op: Operation, printer: Printer) -> None:
    found = _enumeration_keyword(type(op))
    if found is None:
        return
    keyword, name = found
    attribute = op.properties.get(name)
    if attribute is None:
        return
    value = SCAN_OPS[attribute.value.data] if isinstance(attribute, IntegerAttr) else attribute.data
    if _DEFAULTS.get(name) != value:
        printer.print_string(f" {keyword} = <{value}>")


def _parse_enumeration(parser: Parser, op_class: type[Operation]) -> dict[str, Attribute]:
    found = _enumeration_keyword(op_class)
    if found is None:
        return {}
    keyword, name = found
    if parser.parse_optional_keyword(keyword) is None:
        return {name: op_class.ENUMERATIONS[name](_DEFAULTS[name])}
    parser.parse_punctuation("=")
    if name == "scan_op":
        with parser.in_angle_brackets():
            return {name: IntegerAttr(SCAN_OPS.index(parser.parse_identifier()), IntegerType(32))}
    enumeration = op_class.ENUMERATIONS[name]
    return {name: enumeration(enumeration.parse_parameter(parser))}


def _print_functional(op: Operation, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        _print_list(printer, op.operands)
    _print_enumeration(op, printer)
    printer.print_string(" : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)
    _print_discardable(op, printer)


def _parse_functional(parser: Parser, op_class: type[Operation]) -> Operation:
    operands = _parse_operands(parser)
    properties = _parse_enumeration(parser, op_class)
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    return _finish(parser, op_class, operands, operand_types, _parse_result_types(parser), properties)


def _print_call(op: Operation, printer: Printer) -> None:
    printer.print_string("(")
    _print_list(printer, op.operands)
    printer.print_string(") : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)
    _print_discardable(op, printer)


def _parse_call(parser: Parser, op_class: type[Operation]) -> Operation:
    operands = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    return _finish(parser, op_class, operands, operand_types, _parse_result_types(parser))


# ---- `%a : T -> U` --------------------------------------------------------------------------------


def _print_unary(op: Operation, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    _print_enumeration(op, printer)
    printer.print_string(" : ")
    _print_type(op.operands[0].type, printer)
    printer.print_string(" -> ")
    _print_type(op.results[0].type, printer)
    _print_discardable(op, printer)


def _parse_unary(parser: Parser, op_class: type[Operation]) -> Operation:
    operand = parser.parse_unresolved_operand()
    properties = _parse_enumeration(parser, op_class)
    parser.parse_punctuation(":")
    operand_type = _parse_type(parser, ImageType)
    parser.parse_punctuation("->")
    return _finish(parser, op_class, [operand], [operand_type], [_parse_type(parser, ImageType)], properties)


# ---- `%a at %b along %c : (T, U, V) to W` ---------------------------------------------------------


def _to_form(template: str) -> Form:
    """A form whose operands stand in a template and whose result type follows `to`.

    `{}` is an operand; the words and parentheses between operands print as they stand.
    """
    pieces = template.split("{}")

    def print_op(op: Operation, printer: Printer) -> None:
        printer.print_string(" ")
        for piece, operand in zip(pieces, op.operands, strict=False):
            printer.print_string(piece)
            printer.print_ssa_value(operand)
        printer.print_string(pieces[-1] + " : ")
        _print_types([operand.type for operand in op.operands], printer)
        printer.print_string(" to ")
        printer.print_attribute(op.results[0].type)
        _print_discardable(op, printer)

    def parse_piece(parser: Parser, piece: str) -> None:
        for word in re.findall(r"\w+|[^\w\s]", piece):
            parser.parse_keyword(word) if word.isalpha() else parser.parse_punctuation(word)

    def parse_op(parser: Parser, op_class: type[Operation]) -> Operation:
        operands = []
        for piece in pieces[:-1]:
            parse_piece(parser, piece)
            operands.append(parser.parse_unresolved_operand())
        parse_piece(parser, pieces[-1])
        parser.parse_punctuation(":")
        operand_types = _parse_type_list(parser)
        parser.parse_keyword("to")
        return _finish(parser, op_class, operands, operand_types, [parser.parse_type()])

    return Form(print_op, parse_op)


def _print_cast(op: Operation, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    printer.print_string(" : ")
    printer.print_attribute(op.operands[0].type)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)
    _print_discardable(op, printer)


def _parse_cast(parser: Parser, op_class: type[Operation]) -> Operation:
    operand = parser.parse_unresolved_operand()
    parser.parse_punctuation(":")
    operand_type = parser.parse_type()
    parser.parse_keyword("to")
    return _finish(parser, op_class, [operand], [operand_type], [parser.parse_type()])


# ---- attributes in braces: interpolate, delegate, metal4_kernel -----------------------------------


def _print_braced(op: Operation, printer: Printer) -> None:
    printer.print_string(" ")
    _print_list(printer, op.operands)
    printer.print_string(" ")
    printer.print_attr_dict(op.properties)
    printer.print_string(" : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)
    _print_discardable(op, printer)


def _parse_braced(parser: Parser, op_class: type[Operation]) -> Operation:
    operands = _parse_operands(parser)
    properties = dict(parser.parse_optional_attr_dict())
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    return _finish(parser, op_class, operands, operand_types, _parse_result_types(parser), properties)


def _print_delegate(op: Operation, printer: Printer) -> None:
    printer.print_string(f'<"{op.properties["delegate_id"].data}">(')
    _print_list(printer, op.operands)
    printer.print_string(") ")
    printer.print_attr_dict({key: value for key, value in op.properties.items() if key != "delegate_id"})
    printer.print_string(" : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)


def _parse_delegate(parser: Parser, op_class: type[Operation]) -> Operation:
    with parser.in_angle_brackets():
        delegate = StringAttr(parser.parse_str_literal())
    operands = parser.parse_op_args_list()
    properties = {"delegate_id": delegate, **parser.parse_optional_attr_dict()}
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    return _finish(parser, op_class, operands, operand_types, _parse_result_types(parser), properties)


def _metal_segments(op: Operation) -> list[list[SSAValue]]:
    sizes = op.properties["operandSegmentSizes"].get_values()
    segments, start = [], 0
    for size in sizes:
        segments.append(list(op.operands[start : start + size]))
        start += size
    return segments


def _print_metal(op: Operation, printer: Printer) -> None:
    arguments, grid, group, shapes = _metal_segments(op)
    printer.print_string(" kernel_args(")
    _print_list(printer, arguments)
    printer.print_string("), threads_per_grid ")
    _print_list(printer, grid)
    printer.print_string(", threads_per_thread_group ")
    _print_list(printer, group)
    printer.print_string(", result_shapes(")
    _print_list(printer, shapes)
    printer.print_string(") ")
    printer.print_attr_dict({key: value for key, value in op.properties.items() if key != "operandSegmentSizes"})
    printer.print_string(" : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)


def _parse_metal(parser: Parser, op_class: type[Operation]) -> Operation:
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
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    operands = [*arguments, grid, group, *shapes]
    return _finish(parser, op_class, operands, operand_types, _parse_result_types(parser), properties)


# ---- constants, tokens, calls ---------------------------------------------------------------------


def _print_constant(op: Operation, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_attribute(op.properties["value"])
    _print_discardable(op, printer)


def _parse_constant(parser: Parser, op_class: type[Operation]) -> Operation:
    value = parser.parse_attribute()
    if not isinstance(value, TypedAttribute | DenseResourceAttr):
        parser.raise_error("a coreai.constant needs a typed attribute")
    return _finish(parser, op_class, [], [], [value.get_type()], {"value": value})


def _print_create_token(op: Operation, printer: Printer) -> None:
    printer.print_string(" : ")
    printer.print_attribute(TOKEN)


def _parse_create_token(parser: Parser, op_class: type[Operation]) -> Operation:
    parser.parse_punctuation(":")
    return _finish(parser, op_class, [], [], [parser.parse_type()])


def _print_invoke(op: Operation, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_attribute(op.properties["callee"].symbol)
    printer.print_string("(")
    _print_list(printer, op.operands)
    printer.print_string(")  : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)
    _print_discardable(op, printer)


def _parse_invoke(parser: Parser, op_class: type[Operation]) -> Operation:
    callee = SymbolConstantAttr(parser.parse_attribute())
    operands = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    return _finish(parser, op_class, operands, operand_types, _parse_result_types(parser), {"callee": callee})


def _print_target_spec(op: Operation, printer: Printer) -> None:
    printer.print_string("{spec = ")
    op.properties["spec"].print_parameters(printer)
    compilation = op.properties.get("compilation")
    if compilation is not None:
        printer.print_string(", compilation = ")
        compilation.print_parameter(printer)
    printer.print_string("}")


def _parse_target_spec(parser: Parser, op_class: type[Operation]) -> Operation:
    properties: dict[str, Attribute] = {}
    with parser.in_braces():
        parser.parse_keyword("spec")
        parser.parse_punctuation("=")
        spec = op_class.ENUMERATIONS["spec"]
        properties["spec"] = spec.new(spec.parse_parameters(parser))
        if parser.parse_optional_punctuation(",") is not None:
            parser.parse_keyword("compilation")
            parser.parse_punctuation("=")
            compilation = op_class.ENUMERATIONS["compilation"]
            properties["compilation"] = compilation(compilation.parse_parameter(parser))
    return _finish(parser, op_class, [], [], [], properties)


# ---- terminators ----------------------------------------------------------------------------------


def _print_terminator(op: Operation, printer: Printer) -> None:
    if not op.operands:
        return
    printer.print_string(" ")
    _print_list(printer, op.operands)
    printer.print_string(" : ")
    types = [operand.type for operand in op.operands]
    if op.name == "coreai.condition":
        _print_types(types, printer)
    else:
        printer.print_list(types, printer.print_attribute)


def _parse_terminator(parser: Parser, op_class: type[Operation]) -> Operation:
    operands = _parse_operands(parser)
    types: list[Attribute] = []
    if operands:
        parser.parse_punctuation(":")
        if op_class.name == "coreai.condition":
            types = _parse_type_list(parser)
        else:
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    return _finish(parser, op_class, operands, types, [])


# ---- regions --------------------------------------------------------------------------------------


def _print_region(region: Region, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_region(region)


def _print_if(op: Operation, printer: Printer) -> None:
    printer.print_string(" ")
    printer.print_ssa_value(op.operands[0])
    _print_region(op.regions[0], printer)
    if op.regions[1].blocks:
        printer.print_string(" else")
        _print_region(op.regions[1], printer)
    printer.print_string(" : ")
    printer.print_attribute(op.operands[0].type)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)


def _parse_if(parser: Parser, op_class: type[Operation]) -> Operation:
    condition = parser.parse_unresolved_operand()
    then = parser.parse_region()
    otherwise = parser.parse_region() if parser.parse_optional_keyword("else") is not None else Region()
    parser.parse_punctuation(":")
    condition_type = parser.parse_type()
    parser.parse_punctuation("->")
    results = _parse_result_types(parser)
    return _finish(parser, op_class, [condition], [condition_type], results, regions=[then, otherwise])


def _print_while(op: Operation, printer: Printer) -> None:
    if op.operands:
        printer.print_string(" ")
        _print_list(printer, op.operands)
    _print_region(op.regions[0], printer)
    printer.print_string(" do")
    _print_region(op.regions[1], printer)
    printer.print_string(" : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_types([result.type for result in op.results], printer)


def _parse_while(parser: Parser, op_class: type[Operation]) -> Operation:
    operands = _parse_operands(parser)
    before = parser.parse_region()
    parser.parse_keyword("do")
    after = parser.parse_region()
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    results = _parse_result_types(parser)
    return _finish(parser, op_class, operands, operand_types, results, regions=[before, after])


def _region_form(template: str, arrow: str) -> Form:
    """Operands in a template, then one region, then the signature: reduce, reduce_index, scatter_nd."""
    pieces = template.split("{}")

    def print_op(op: Operation, printer: Printer) -> None:
        printer.print_string(" ")
        for piece, operand in zip(pieces, op.operands, strict=False):
            printer.print_string(piece)
            printer.print_ssa_value(operand)
        _print_region(op.regions[0], printer)
        printer.print_string(" : ")
        _print_types([operand.type for operand in op.operands], printer)
        printer.print_string(f" {arrow} ")
        _print_results([result.type for result in op.results], printer)

    def parse_op(parser: Parser, op_class: type[Operation]) -> Operation:
        operands = []
        for piece in pieces[:-1]:
            for word in re.findall(r"\w+|[^\w\s]", piece):
                parser.parse_keyword(word) if word[0].isalpha() else parser.parse_punctuation(word)
            operands.append(parser.parse_unresolved_operand())
        region = parser.parse_region()
        parser.parse_punctuation(":")
        operand_types = _parse_type_list(parser)
        parser.parse_punctuation("->") if arrow == "->" else parser.parse_keyword(arrow)
        results = _parse_result_types(parser)
        return _finish(parser, op_class, operands, operand_types, results, regions=[region])

    return Form(print_op, parse_op)


def _print_scatter_nd(op: Operation, printer: Printer) -> None:
    data, indices, updates = op.operands
    printer.print_string(" ")
    printer.print_ssa_value(data)
    printer.print_string(" with ")
    printer.print_ssa_value(updates)
    printer.print_string(" at ")
    printer.print_ssa_value(indices)
    _print_region(op.regions[0], printer)
    printer.print_string(" : ")
    _print_types([data.type, updates.type, indices.type], printer)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)


def _parse_scatter_nd(parser: Parser, op_class: type[Operation]) -> Operation:
    data = parser.parse_unresolved_operand()
    parser.parse_keyword("with")
    updates = parser.parse_unresolved_operand()
    parser.parse_keyword("at")
    indices = parser.parse_unresolved_operand()
    region = parser.parse_region()
    parser.parse_punctuation(":")
    data_type, updates_type, indices_type = _parse_type_list(parser)
    parser.parse_keyword("to")
    operands, types = [data, indices, updates], [data_type, indices_type, updates_type]
    return _finish(parser, op_class, operands, types, [parser.parse_type()], regions=[region])


def _print_slice_update(op: Operation, printer: Printer) -> None:
    data, start, end, strides, update = op.operands
    printer.print_string(" ")
    printer.print_ssa_value(data)
    printer.print_string(" with ")
    printer.print_ssa_value(update)
    printer.print_string(" at (")
    _print_list(printer, [start, end, strides])
    printer.print_string(") : ")
    _print_types([value.type for value in (data, update, start, end, strides)], printer)
    printer.print_string(" to ")
    printer.print_attribute(op.results[0].type)
    _print_discardable(op, printer)


def _parse_slice_update(parser: Parser, op_class: type[Operation]) -> Operation:
    data = parser.parse_unresolved_operand()
    parser.parse_keyword("with")
    update = parser.parse_unresolved_operand()
    parser.parse_keyword("at")
    start, end, strides = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    data_type, update_type, *index_types = _parse_type_list(parser)
    parser.parse_keyword("to")
    operands, types = [data, start, end, strides, update], [data_type, *index_types, update_type]
    return _finish(parser, op_class, operands, types, [parser.parse_type()])


def _print_isolated_group(op: Operation, printer: Printer) -> None:
    printer.print_string(f'<"{op.properties["delegate_id"].data}">(')
    _print_list(printer, op.operands)
    printer.print_string(") : ")
    _print_types([operand.type for operand in op.operands], printer)
    printer.print_string(" -> ")
    _print_results([result.type for result in op.results], printer)
    _print_region(op.regions[0], printer)


def _parse_isolated_group(parser: Parser, op_class: type[Operation]) -> Operation:
    with parser.in_angle_brackets():
        delegate = StringAttr(parser.parse_str_literal())
    operands = parser.parse_op_args_list()
    parser.parse_punctuation(":")
    operand_types = _parse_type_list(parser)
    parser.parse_punctuation("->")
    results = _parse_result_types(parser)
    region = parser.parse_region()
    return _finish(parser, op_class, operands, operand_types, results, {"delegate_id": delegate}, [region])


# ---- graph ----------------------------------------------------------------------------------------

_GRAPH_KEYWORDS = {"private": "priv", "noinline": "no_inline", "externalize": "externalize"}
_EMPTY = DictionaryAttr({})


def _attributes_of(array: Attribute | None, count: int) -> list[DictionaryAttr]:
    return list(array.data) if isinstance(array, ArrayAttr) else [_EMPTY] * count


def _print_graph(op: Operation, printer: Printer) -> None:
    properties = op.properties
    signature: FunctionType = properties["function_type"]
    for keyword, name in _GRAPH_KEYWORDS.items():
        if name in properties:
            printer.print_string(f" {keyword}")
    printer.print_string(" ")
    printer.print_symbol_name(properties["sym_name"].data)
    declared = properties["param_decls"].text.data
    if declared != "[]":
        printer.print_string(declared.strip("[]"))
    arguments = op.regions[0].block.args if op.regions[0].blocks else ()
    argument_attributes = _attributes_of(properties.get("arg_attrs"), len(signature.inputs))
    printer.print_string("(")
    for index, type_ in enumerate(signature.inputs):
        if index:
            printer.print_string(", ")
        if arguments:
            printer.print_ssa_value(arguments[index])
            printer.print_string(": ")
        printer.print_attribute(type_)
        if argument_attributes[index].data:
            printer.print_string(" ")
            printer.print_attribute(argument_attributes[index])
    printer.print_string(")")
    results = list(signature.outputs)
    result_attributes = _attributes_of(properties.get("res_attrs"), len(results))
    if results:
        printer.print_string(" -> ")
        parenthesised = len(results) > 1 or bool(result_attributes[0].data)
        printer.print_string("(" if parenthesised else "")
        for index, type_ in enumerate(results):
            if index:
                printer.print_string(", ")
            printer.print_attribute(type_)
            if result_attributes[index].data:
                printer.print_string(" ")
                printer.print_attribute(result_attributes[index])
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


def _parse_graph(parser: Parser, op_class: type[Operation]) -> Operation:
    properties: dict[str, Attribute] = {}
    while (keyword := parser.parse_optional_keyword_in(_GRAPH_KEYWORDS)) is not None:
        properties[_GRAPH_KEYWORDS[keyword]] = UnitAttr()
    properties["sym_name"] = parser.parse_symbol_name()
    declarations = "[]"
    if parser._current_token.text == "<":
        declarations = f"[<{parser._parse_dialect_symbol_body()}>]"
    properties["param_decls"] = op_class.ENUMERATIONS["param_decls"](StringAttr(declarations))

    def parse_argument() -> tuple[object, Attribute, DictionaryAttr]:
        argument = parser.parse_optional_argument()
        type_ = argument.type if argument else parser.parse_type()
        return argument, type_, DictionaryAttr(parser.parse_optional_attr_dict())

    def parse_result() -> tuple[Attribute, DictionaryAttr]:
        return parser.parse_type(), DictionaryAttr(parser.parse_optional_attr_dict())

    arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parse_argument)
    results: list[tuple[Attribute, DictionaryAttr]] = []
    if parser.parse_optional_punctuation("->") is not None:
        if parser._current_token.text == "(":
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
    region = parser.parse_region(named) if parser._current_token.text == "{" else Region()
    ordered = {key: properties[key] for key in sorted(properties)}
    return op_class.create(properties=ordered, attributes=attributes, regions=[region])


FORMS: dict[str, Form] = {
    "functional": Form(_print_functional, _parse_functional),
    "call": Form(_print_call, _parse_call),
    "pad": Form(_print_functional, _parse_functional),
    "scan": Form(_print_functional, _parse_functional),
    "scatter_along_axis": Form(_print_functional, _parse_functional),
    "read_handle": Form(_print_functional, _parse_functional),
    "write_handle": Form(_print_functional, _parse_functional),
    "unary": Form(_print_unary, _parse_unary),
    "gelu": Form(_print_unary, _parse_unary),
    "image_to_tensor": Form(_print_unary, _parse_unary),
    "tensor_to_image": Form(_print_unary, _parse_unary),
    "to": _to_form("{}, {}"),
    "{} at {} along {} to": _to_form("{} at {} along {}"),
    "{} at {} to": _to_form("{} at {}"),
    "slice_update": Form(_print_slice_update, _parse_slice_update),
    "cast": Form(_print_cast, _parse_cast),
    "interpolate": Form(_print_braced, _parse_braced),
    "interpolate_coordinates": Form(_print_braced, _parse_braced),
    "delegate": Form(_print_delegate, _parse_delegate),
    "metal4_kernel": Form(_print_metal, _parse_metal),
    "constant": Form(_print_constant, _parse_constant),
    "create_token": Form(_print_create_token, _parse_create_token),
    "invoke": Form(_print_invoke, _parse_invoke),
    "target_spec": Form(_print_target_spec, _parse_target_spec),
    "output": Form(_print_terminator, _parse_terminator),
    "yield": Form(_print_terminator, _parse_terminator),
    "condition": Form(_print_terminator, _parse_terminator),
    "if": Form(_print_if, _parse_if),
    "while": Form(_print_while, _parse_while),
    "reduce": _region_form("{}, {}, init {}", "->"),
    "reduce_index": _region_form("{}, {}, init {} init_index {}", "->"),
    "scatter_nd": Form(_print_scatter_nd, _parse_scatter_nd),
    "isolated_group": Form(_print_isolated_group, _parse_isolated_group),
    "graph": Form(_print_graph, _parse_graph),
}

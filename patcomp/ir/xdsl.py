"""The only file that imports xDSL and uses its private attributes; everything else takes these names from here.

xDSL's API changes about twice a month; only this file has to follow.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from xdsl.context import Context
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BFloat16Type,
    BoolAttr,
    Builtin,
    BytesAttr,
    ComplexType,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    DictionaryAttr,
    FileLineColLoc,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    FunctionType,
    FusedLoc,
    IntAttr,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    NoneType,
    Signedness,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    UnknownLoc,
    UnrealizedConversionCastOp,
)
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Data,
    Dialect,
    Operation,
    OpResult,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
    TypedAttribute,
    Use,
)
from xdsl.ir.core import SSAValues
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    opt_region_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    OpTrait,
    Pure,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer

_A = TypeVar("_A", bound=Attribute)

LARGEST_SIZE = 2**63 - 1
"""Sizes are 64-bit integers for PyTorch and the toolchain."""


def set_name(value: SSAValue, name: str | None) -> None:
    """Set a value's name in the text exactly. xDSL's own setter drops a trailing number (`view_3` becomes `view`), so
    names would change from stage to stage."""
    if name is not None and not SSAValue.is_valid_name(name):
        name = re.sub(r"[^A-Za-z0-9_]", "_", name) if re.match(r"[A-Za-z_]", name) else None
    value._name = name


def replace_uses(value: SSAValue, by: SSAValue) -> None:
    """Let all users of a value use another one, which takes its name if it has none. xDSL's own method drops a trailing
    number of the name, as its setter does."""
    if by._name is None:
        by._name = value._name
    value.replace_all_uses_with(by)


def is_inside(value: SSAValue, op: Operation) -> bool:
    """Whether a value is made, or is an argument of a block, in the regions of an op."""
    return op.is_ancestor(value.owner)


def maker_of(value: SSAValue) -> Operation | None:
    """The op that computes a value; None for an argument of a block."""
    return value.op if isinstance(value, OpResult) else None


def set_type(value: SSAValue, type_: Attribute) -> None:
    """Change the type of a value in place."""
    value._type = type_


def unchecked(kind: type[_A], **fields: object) -> _A:
    """Make an attribute of valid fields without xDSL's checks. The checks take most of the time where many attributes
    are made."""
    made = kind.__new__(kind)
    made.__dict__.update(fields)
    return made


def ops_inside(scope: Operation | Region | Block) -> list[Operation]:
    """The ops inside a scope in order; the ops of a region follow the op of the region. If the scope is an op, it is
    not included. `walk` has the same ops, but passes each through several generators."""
    found: list[Operation] = []
    _collect_ops(scope, found)
    return found


def _collect_ops(scope: Operation | Region | Block, found: list[Operation]) -> None:
    if type(scope) is not Block:
        for inner in scope.blocks if isinstance(scope, Region) else scope.regions:  # type: ignore[union-attr]
            _collect_ops(inner, found)
        return
    op = scope._first_op
    while op is not None:
        found.append(op)
        if op.regions:
            _collect_ops(op, found)
        op = op._next_op


def in_order(ops: Iterable[Operation]) -> list[Operation]:
    """Some ops of one block in its order. It takes as long as they are apart, however long the block is."""
    left = set(ops)
    found: deque[Operation] = deque()
    before = after = next(iter(left), None)
    while left:
        assert before is not None or after is not None, "the ops are in several blocks"
        if before is not None and before in left:
            left.remove(before)
            found.appendleft(before)
        if after is not None and after in left:
            left.remove(after)
            found.append(after)
        before, after = before and before._prev_op, after and after._next_op
    return list(found)


def next_token(parser: AttrParser) -> str:
    """The text of the token that the parser reads next."""
    return parser._current_token.text


def parse_balanced_text(parser: AttrParser) -> str:
    """Parse `<...>` and return the text between the brackets, which may hold brackets itself."""
    return parser._parse_dialect_symbol_body()


def parse_error_message(error: ParseError) -> str:
    """The message of an error of the parser: place, line and reason; only a part of a very long line."""
    span = error.span
    start, end = span.input.get_start_of_line(span.start), span.input.get_end_of_line(max(span.start, span.end - 1))
    if end - start <= 500 and len(error.msg) <= 500:
        return str(error)
    first, last = max(start, span.start - 80), min(end, span.start + 80)
    excerpt = str(span.input.content[first:last]).replace("\n", " ")
    cut = f"{'...' * (first > start)}{excerpt}{'...' * (last < end)}"
    caret = " " * (span.start - first + 3 * (first > start)) + "^"
    return f"{span.get_location()}\n{cut}\n{caret}\n{error.msg[:500]}\n"


class OwnOperation(IRDLOperation):
    """The base of the ops of our dialects, which have no successors and no properties with a default. `create` makes
    them in a third of the time that xDSL's takes."""

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # Python's abstract classes ask each of the 150 op classes in turn whether a new class is one of theirs
        return cls in other.__mro__

    @classmethod
    def create(
        cls,
        *,
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = {},
        attributes: Mapping[str, Attribute] = {},
        location: LocationAttr | None = None,
        successors: Sequence[Block] = (),
        regions: Sequence[Region] = (),
    ) -> Self:
        assert not successors
        op = cls.__new__(cls)
        op._operands = SSAValues(operands)
        op._operand_uses = tuple([Use(op, index) for index in range(len(op._operands))])
        for operand, use in zip(op._operands, op._operand_uses, strict=True):
            operand.add_use(use)
        op.results = SSAValues([OpResult(type_, op, index) for index, type_ in enumerate(result_types)])
        op.properties, op.attributes = dict(properties), dict(attributes)
        op.location = _UNKNOWN if location is None else location
        op.regions = ()
        for region in regions:
            op.add_region(region)
        return op


_UNKNOWN = UnknownLoc()


class NamingPrinter(Printer):
    """A printer that uses the exact names of values: `view_3` stays `view_3`."""

    def __init__(self, *args: Any, names: bool = True, **options: Any):
        super().__init__(*args, **options)
        self._names = names

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:  # without the count of columns, for which xDSL has diagnostics
            print(text, end="", file=self.stream)

    def print_ssa_value(self, value: SSAValue) -> str:
        name = self.name_of(value)
        self.print_string(f"%{name}")
        return name

    def name_of(self, value: SSAValue) -> str:
        """The name of a value in the text, without its percent sign."""
        name = self._ssa_values.get(value)
        if name is None:
            name = self._ssa_values[value] = self._new_name(value.name_hint if self._names else None)
        return name

    def _new_name(self, hint: str | None) -> str:
        if hint is None:
            return self._get_new_valid_name_id()
        name, number = hint, 0
        while name in self.ssa_names:
            number += 1
            name = f"{hint}_{number}"
        self.ssa_names[name] = 1
        return name


class _Lexer(MLIRLexer):
    """A lexer that needs linear time to find that a string is not closed; xDSL's needs exponential time."""

    _unescaped_characters_regex = re.compile(r'"[^"\\\n\v\f]*(?:\\(?:["nt\\]|[0-9A-Fa-f]{2})[^"\\\n\v\f]*)*"')


class ExtensibleParser(Parser):
    """A parser whose subclasses may override how elements of tensor literals and weights are read.

    It also reads string literals with other characters than ASCII as strings, and keeps the exact names of values.
    """

    def __init__(self, ctx: Context, text: str, name: str):
        super().__init__(ctx, "", name)
        self._parser_state = ParserState(_Lexer(Input(text, name)))

    def parse_shape_dimension(self, allow_dynamic: bool = True) -> int:
        start = self.pos
        size = super().parse_shape_dimension(allow_dynamic)
        if size > LARGEST_SIZE:
            self.raise_error(f"a dimension has at most {LARGEST_SIZE} elements", start)
        return size

    def parse_tensor_element(self) -> Any:
        """Parse one element inside `dense<...>`."""
        raise NotImplementedError

    def parse_resource(self) -> DenseResourceAttr:
        """Parse what follows `dense_resource`."""
        raise NotImplementedError

    def parse_bool_or_number(self) -> bool | int | float:
        return self._parse_bool_int_or_float()[0]

    def parse_tensor_literal(self) -> tuple[list[Any], list[int]]:
        """Parse nested lists: their elements, and their shape."""
        elements: list[Any]
        elements, shape = self._parse_tensor_literal()
        return elements, shape

    def parse_optional_str_literal(self) -> str | None:
        raw = self.parse_optional_bytes_literal()
        return raw.decode() if raw is not None else super().parse_optional_str_literal()

    def _parse_tensor_literal_element(self) -> Any:
        return self.parse_tensor_element()

    def _parse_builtin_dense_resource_attr(self) -> DenseResourceAttr:
        return self.parse_resource()

    def _parse_optional_string_attr(self) -> StringAttr | None:
        literal = self.parse_optional_str_literal()
        return None if literal is None else StringAttr(literal)

    def _parse_optional_builtin_attr(self) -> Attribute | None:
        attribute = super()._parse_optional_builtin_attr()
        return StringAttr(attribute.data.decode()) if isinstance(attribute, BytesAttr) else attribute

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Any) -> None:
        super()._register_ssa_definition(name, values, span)
        if not name.isdigit():
            for value in values:
                set_name(value, name)


__all__ = [name for name in dir() if name[0] != "_"]

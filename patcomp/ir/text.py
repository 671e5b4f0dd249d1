"""IR as text and back: the printer with cached attributes, and the parser without xDSL's traps.

Both forms are read and written: the pretty form of the documents (default) and MLIR's generic form.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from functools import cache

from patcomp.errors import ParseError
from patcomp.ir.types import ELEMENT_TYPES, TensorType, element_name, shape_of
from patcomp.ir.xdsl import (
    Attribute,
    Builtin,
    BytesAttr,
    Context,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    ModuleOp,
    Operation,
    Printer,
    StringAttr,
)
from patcomp.ir.xdsl import ParseError as XdslParseError
from patcomp.ir.xdsl import Parser as XdslParser


@cache
def _context() -> Context:
    from patcomp.ir.aten import ATEN
    from patcomp.ir.dialect import COREAI, COREAIX, PARAM
    from patcomp.ir.region import PATCOMP

    context = _OpenContext()
    for dialect in (Builtin, COREAI, COREAIX, PARAM, PATCOMP, ATEN):
        context.load_dialect(dialect)
    return context


class _OpenContext(Context):
    """A context that knows every PyTorch operator without holding a class for each."""

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        from patcomp.ir import aten

        found = super().get_optional_op(name, dialect_stack=dialect_stack)
        return found or aten._op_class(name)


class TextPrinter(Printer):
    """xDSL's printer with the text of each attribute and type kept, three times as fast."""

    def __init__(self, stream: io.StringIO, *, generic: bool = False, locations: bool = False):
        super().__init__(stream=stream, print_generic_format=generic, print_debuginfo=locations)
        self._attribute_text: dict[Attribute, str] = {}

    def print_attribute(self, attribute: Attribute) -> None:
        text = self._attribute_text.get(attribute)
        if text is None:
            outer, self.stream = self.stream, io.StringIO()
            self._print_attribute_text(attribute)
            text = self.stream.getvalue()
            self.stream = outer
            self._attribute_text[attribute] = text
        self.print_string(text)

    def _print_attribute_text(self, attribute: Attribute) -> None:
        if isinstance(attribute, DenseResourceAttr):
            # xDSL would look the blob up in a store of its own to print it; ours stays outside the text
            self.print_string(f"dense_resource<{attribute.resource_handle.data}> : ")
            self.print_attribute(attribute.type)
        else:
            super().print_attribute(attribute)

    def print_op(self, op: Operation) -> None:
        if isinstance(op, ModuleOp) and not self.print_generic_format:
            self.print_string("module ")
            self.print_region(op.body, print_empty_block=False)
        else:
            super().print_op(op)


def to_text(op: Operation, *, generic: bool = False, locations: bool = False) -> str:
    """The MLIR text of an op and what is inside it.

    Args:
        op: usually the module.
        generic: MLIR's generic form (`"coreai.add"(%a, %b) : ...`) instead of the pretty one.
        locations: append `loc(...)` to every op.
    """
    stream = io.StringIO()
    TextPrinter(stream, generic=generic, locations=locations).print_op(op)
    return stream.getvalue()


class TextParser(XdslParser):
    """xDSL's parser with its defects mended.

    * bit patterns (`0x7F800000`) in dense float literals are read as bits, not as integers;
    * non-ASCII string literals come back as strings;
    * `dense_resource<key>` keeps its key and needs no blob.
    """

    def _parse_tensor_literal_element(self) -> XdslParser._TensorLiteralElement:
        token = self._current_token
        element = super()._parse_tensor_literal_element()
        if token.text[:2] in ("0x", "0X"):
            return _BitPattern(element.is_negative, element.value, element.span, len(token.text) - 2)
        return element

    def _parse_optional_string_attr(self) -> StringAttr | None:
        literal = self.parse_optional_str_literal()
        return None if literal is None else StringAttr(literal)

    def _parse_optional_builtin_attr(self) -> Attribute | None:
        attribute = super()._parse_optional_builtin_attr()
        if isinstance(attribute, BytesAttr):
            return StringAttr(attribute.data.decode())
        return attribute

    def parse_optional_str_literal(self) -> str | None:
        raw = self.parse_optional_bytes_literal()
        if raw is not None:
            return raw.decode()
        return super().parse_optional_str_literal()

    def _parse_builtin_dense_resource_attr(self) -> DenseResourceAttr:
        with self.in_angle_brackets():
            key = self.parse_identifier(" for resource key")
        self.parse_punctuation(":")
        return DenseResourceAttr.from_params(key, self.parse_type())


class _BitPattern(XdslParser._TensorLiteralElement):
    """A hexadecimal literal inside `dense<...>`: the bits of a float, or an integer."""

    def __init__(self, is_negative: bool, value: object, span: object, digits: int):
        super().__init__(is_negative, value, span)
        self.digits = digits

    def to_type(self, parser: XdslParser, type: Attribute) -> object:
        name = element_name(type)
        if name in ELEMENT_TYPES and name[0] in "bf":
            raw = int(self.value).to_bytes(type.compile_time_size, "little")
            return type.unpack(raw, 1)[0]
        return super().to_type(parser, type)


def parse_module(text: str, *, name: str = "<text>") -> ModuleOp:
    """The module of a text in either form, as printed by `to_text` or by the real toolchain.

    Raises:
        ParseError: the text is not valid; the message shows the line and what was expected.
    """
    try:
        module = TextParser(_context(), text, name).parse_module()
    except XdslParseError as error:
        raise ParseError(f"{name}: {error}") from None
    except (struct.error, ValueError, TypeError) as error:
        raise ParseError(f"{name}: {error}") from error
    assert isinstance(module, ModuleOp)
    return module


def dense_shape(attribute: DenseIntOrFPElementsAttr | DenseResourceAttr) -> tuple[int, ...]:
    """The static shape of a constant's attribute."""
    assert isinstance(attribute.type, TensorType)
    return shape_of(attribute.type)  # type: ignore[return-value]

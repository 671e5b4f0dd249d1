"""Print and parse the IR: a printer with cached attributes, and a parser without the defects of xDSL's.

Both forms are read and written: the pretty form of the documents (default) and MLIR's generic form.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from patcomp.errors import ParseError
from patcomp.ir.literals import Literal, LiteralNumber, dense_of_hexadecimal, dense_of_literals, dense_text
from patcomp.ir.types import TensorType, shape_of
from patcomp.ir.xdsl import (
    Attribute,
    Builtin,
    Context,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    ExtensibleParser,
    ModuleOp,
    NamingPrinter,
    Operation,
    OwnOperation,
    UnitAttr,
    VerifyException,
    next_token,
    parse_error_message,
)
from patcomp.ir.xdsl import ParseError as XdslParseError


@cache
def context() -> Context:
    """The context with all dialects of patcomp."""
    from patcomp.ir.aten import ATEN
    from patcomp.ir.dialect import COREAI, COREAIX, PARAM
    from patcomp.ir.region import PATCOMP

    made = _OpenContext()
    for dialect in (Builtin, COREAI, COREAIX, PARAM, PATCOMP, ATEN):
        made.load_dialect(dialect)
    return made


class _OpenContext(Context):
    """A context that knows every PyTorch operator without holding a class for each."""

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        from patcomp.ir import aten

        found = super().get_optional_op(name, dialect_stack=dialect_stack)
        return found or aten.find_op_class(name)


class AttributeTexts:
    """The texts of attributes and types, which several printers of one form may share."""

    def __init__(self) -> None:
        self.by_object: dict[int, tuple[Attribute, str]] = {}
        """The same as the other table, because the hash of a large attribute takes longer than its text."""
        self.by_content: dict[Attribute, str] = {}


class TextPrinter(NamingPrinter):
    """xDSL's printer with the text of each attribute and type kept, three times as fast."""

    def __init__(
        self,
        stream: io.StringIO,
        *,
        generic: bool = False,
        locations: bool = False,
        names: bool = True,
        known: AttributeTexts | None = None,
    ):
        super().__init__(stream=stream, print_generic_format=generic, print_debuginfo=locations, names=names)
        self._texts = AttributeTexts() if known is None else known
        self._plain = generic and not locations

    def print_attribute(self, attribute: Attribute) -> None:
        self.print_string(self._text_of(attribute))

    def _text_of(self, attribute: Attribute) -> str:
        seen = self._texts.by_object.get(id(attribute))
        if seen is None:
            text = self._texts.by_content.get(attribute) or self._new_text(attribute)
            seen = self._texts.by_object[id(attribute)] = (attribute, text)
        return seen[1]

    def _new_text(self, attribute: Attribute) -> str:
        outer, self.stream = self.stream, io.StringIO()
        self.print_attribute_text(attribute)
        text = self._texts.by_content[attribute] = self.stream.getvalue()
        self.stream = outer
        return text

    def print_attribute_text(self, attribute: Attribute) -> None:
        if isinstance(attribute, DenseResourceAttr):
            # xDSL would look up the blob in its own store; our weights stay outside the text
            self.print_string(f"dense_resource<{attribute.resource_handle.data}> : ")
            self.print_attribute(attribute.type)
        elif isinstance(attribute, DenseIntOrFPElementsAttr) and isinstance(attribute.type, TensorType):
            self.print_string(f"{dense_text(attribute)} : ")
            self.print_attribute(attribute.type)
        else:
            super().print_attribute(attribute)

    def print_attr_dict(self, attr_dict: Mapping[str, Attribute]) -> None:
        # sorted, so that equal ops print equally, and as the toolchain prints them
        super().print_attr_dict({key: attr_dict[key] for key in sorted(attr_dict)})

    def print_op(self, op: Operation) -> None:
        if isinstance(op, ModuleOp) and not self.print_generic_format:
            self.print_string("module ")
            self.print_region(op.body, print_empty_block=False)
        elif self._plain and _is_plain(op):
            self.print_string(self._generic(op))
        else:
            super().print_op(op)

    def _generic(self, op: Operation) -> str:
        """The generic form of a plain op, as xDSL prints it, which takes dozens of calls for each."""
        results = ", ".join([f"%{self.name_of(result)}" for result in op.results])
        operands = ", ".join([f"%{self.name_of(operand)}" for operand in op.operands])
        listed = []
        for name in sorted(op.properties):
            attribute = op.properties[name]
            listed.append(name if isinstance(attribute, UnitAttr) else f"{name} = {self._text_of(attribute)}")
        properties = f" <{{{', '.join(listed)}}}>" if listed else ""
        inputs = ", ".join([self._text_of(operand.type) for operand in op.operands])
        outputs = [self._text_of(result.type) for result in op.results]
        made = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
        return f'{results}{" = " * bool(results)}"{op.name}"({operands}){properties} : ({inputs}) -> {made}'


def _is_plain(op: Operation) -> bool:
    """Whether an op is one of ours with nothing but operands, results, and properties whose names need no quotes."""
    return (
        isinstance(op, OwnOperation)
        and not op.regions
        and not op.attributes
        and all(name.isascii() and name.isidentifier() for name in op.properties)
    )


def to_text(
    op: Operation,
    *,
    generic: bool = False,
    locations: bool = False,
    names: bool = True,
    known: AttributeTexts | None = None,
) -> str:
    """The MLIR text of an op and what is inside it.

    Args:
        op: usually the module.
        generic: MLIR's generic form (`"coreai.add"(%a, %b) : ...`) instead of the pretty one.
        locations: append `loc(...)` to every op.
        names: name values after the model's; otherwise number them, so that equal ops print equally.
        known: the texts of attributes, which several calls in the same form may share; new ones are added.
    """
    stream = io.StringIO()
    TextPrinter(stream, generic=generic, locations=locations, names=names, known=known).print_op(op)
    return stream.getvalue()


class TextParser(ExtensibleParser):
    """xDSL's parser, with every bit of dense constants kept (see `literals`); `dense_resource<key>` needs no blob."""

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        start = self.pos
        literal: Any
        shape: list[int] | None = None
        with self.in_angle_brackets():
            if next_token(self) == ">":
                literal = []
            elif (string := self.parse_optional_str_literal()) is not None:
                literal = string
            else:
                literal, shape = self.parse_tensor_literal()
        if type is None:
            self.parse_punctuation(":")
            type = self.parse_type()
        if not isinstance(type, TensorType) or None in shape_of(type):
            self.raise_error("a dense constant needs a static tensor type", start)
        if shape and tuple(shape) != shape_of(type):
            self.raise_error(f"the constant has the shape {shape}, which is not that of {type}", start)
        try:
            return dense_of_hexadecimal(literal, type) if isinstance(literal, str) else dense_of_literals(literal, type)
        except ValueError as error:
            self.raise_error(str(error), start)

    def parse_tensor_element(self) -> Literal:
        if self.parse_optional_punctuation("(") is None:
            return self._parse_number()
        real = self._parse_number()
        self.parse_punctuation(",")
        imaginary = self._parse_number()
        self.parse_punctuation(")")
        return real, imaginary

    def _parse_number(self) -> LiteralNumber:
        is_hexadecimal = next_token(self)[:2] in ("0x", "0X")
        return LiteralNumber(self.parse_bool_or_number(), is_hexadecimal)

    def parse_resource(self) -> DenseResourceAttr:
        with self.in_angle_brackets():
            key = self.parse_identifier(" for resource key")
        self.parse_punctuation(":")
        return DenseResourceAttr.from_params(key, self.parse_type())  # type: ignore[arg-type]


def parse_module(text: str, *, name: str = "<text>") -> ModuleOp:
    """The module of a text in either form, as printed by `to_text` or by the real toolchain.

    Raises:
        ParseError: the text is not valid; the message shows the line and what was expected.
    """
    parser = None
    try:
        parser = TextParser(context(), text, name)
        module = parser.parse_module()
    except XdslParseError as error:
        raise ParseError(parse_error_message(error).strip()) from None  # which begins with the name and the line
    except RecursionError:
        line = text.count("\n", 0, parser.pos) + 1 if parser is not None else 1
        raise ParseError(f"{name}:{line}: brackets, types or regions are nested too deeply") from None
    except (VerifyException, struct.error, ValueError, TypeError, OverflowError) as error:
        raise ParseError(f"{name}: {error}") from error
    assert isinstance(module, ModuleOp)
    for op in module.walk():
        if any(len(region.blocks) > 1 for region in op.regions):
            raise ParseError(f"{name}: a region of {op.name} has several blocks; this IR has regions of one block")
    return module

"""The `aten` dialect: an op class for every overload PyTorch has, made from its schema when first used.

    %mean = aten.mean.dim %x, dim = [-1], keepdim = true : (tensor<2x8xf32>) -> tensor<2x1xf32>

An op is named by its overload (`aten.add.Tensor`; the default overload drops its suffix, `aten.relu`).
Tensors and symbolic sizes are operands; every other schema argument is a property, defaults included,
so that a rule can account for each of them. In a list of both, `#aten.value` in the property marks the
place of the next operand. Arguments about memory (layout, device, memory format, pinning) are left
out, because values have no memory here.

Schemas come from `aten_schemas.txt` (PyTorch 2.13) and `library_schemas.txt` (libraries that compress models), so that
tools on IR text need neither; the frontend adds the ones of custom ops with `define`. Custom ops keep their namespace:
`my_lib.scale`. What else is known of an op is its row in `aten_facts.txt`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any, ClassVar

from patcomp.ir.aten_facts import OpFacts, facts_of
from patcomp.ir.builder import Builder
from patcomp.ir.traits import Broadcasting, Movement, SameShape, Selection, View, Whole
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import (
    AnyAttr,
    ArrayAttr,
    Attribute,
    Dialect,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    OpTrait,
    OwnOperation,
    ParametrizedAttribute,
    Parser,
    Printer,
    Pure,
    SSAValue,
    StringAttr,
    UnresolvedOperand,
    irdl_attr_definition,
    irdl_op_definition,
    next_token,
    opt_prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


@irdl_attr_definition
class NoneAttr(ParametrizedAttribute):
    """`#aten.none`: the argument was not given."""

    name = "aten.none"


@irdl_attr_definition
class ValueAttr(ParametrizedAttribute):
    """`#aten.value`: the place of the next operand."""

    name = "aten.value"


NONE = NoneAttr()
VALUE = ValueAttr()
_I64, _I1, _F64 = IntegerType(64), IntegerType(1), Float64Type()

MEMORY_ARGUMENTS = {"layout", "device", "memory_format", "pin_memory", "non_blocking", "copy"}
"""Arguments about memory, which have no meaning for tensors as values."""


@dataclass(frozen=True)
class Argument:
    """One argument of an operator schema."""

    name: str
    type: str
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True)
class Schema:
    """An operator's schema: the op's name in the dialect, its arguments, and how many results it has."""

    name: str
    arguments: tuple[Argument, ...]
    result_types: tuple[str, ...]
    text: str
    pointwise: bool = False
    """Whether PyTorch tags the operator so."""
    views: bool = False
    """Whether the result may share the memory of an argument."""

    def __getitem__(self, name: str) -> Argument:
        return next(argument for argument in self.arguments if argument.name == name)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its arguments."""
        return frozenset(argument.name for argument in self.arguments)

    @cached_property
    def defaults(self) -> dict[str, Attribute]:
        """The defaults of the arguments that have one, as attributes."""
        return {argument.name: encode(argument.default, []) for argument in self.arguments if argument.has_default}


def op_name(qualified: str) -> str:
    """`"aten::add.Tensor"` as the dialect spells it: `"aten.add.Tensor"`.

    The operators of coreai-opt have the names of ops of the `coreai` dialect, so they are called `torch_coreai.*` here;
    so are those of patcomp, which is a dialect, too.
    """
    name = qualified.replace("::", ".").removesuffix(".default")
    return f"torch_{name}" if name.startswith(_DIALECTS) else name


def torch_name(name: str) -> str:
    """PyTorch's spelling of an op of the dialect, with dots: the inverse of `op_name`."""
    return name.removeprefix("torch_") if name.startswith(_TORCH_DIALECTS) else name


_DIALECTS = ("coreai.", "patcomp.")
_TORCH_DIALECTS = tuple(f"torch_{name}" for name in _DIALECTS)


_SCHEMA = re.compile(r"([\w:]+)(?:\.(\w+))?\((.*)\) -> (.*)", re.DOTALL)


def _split(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for index, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
    if text[start:].strip():
        yield text[start:].strip()


def _default(text: str, type_: str) -> Any:
    if text == "None":
        return None
    if text in ("True", "False"):
        return text == "True"
    if text.startswith("["):
        return tuple(_default(part, type_.partition("[")[0]) for part in _split(text[1:-1]))
    if text[:1] in "\"'":
        return text[1:-1]
    try:
        number = float(text) if re.search(r"[.einf]", text) else int(text)
    except ValueError:
        return text  # an enumeration such as Mean
    if "[" in type_:
        count = re.search(r"\[(\d+)\]", type_)
        return (number,) * int(count.group(1)) if count else (number,)
    return number


@cache
def parse_schema(text: str) -> Schema:
    """Parse a schema such as `aten::relu(Tensor self) -> Tensor`, perhaps with its tag: `... -> Tensor  # pointwise`.

    Raises:
        ValueError: the text is not an operator schema.
    """
    text, _, tag = text.strip().partition("  # ")
    match = _SCHEMA.fullmatch(text)
    if match is None:
        raise ValueError(f"not an operator schema: {text!r}")
    qualified, overload, arguments, results = match.groups()
    parsed = []
    for part in _split(arguments):
        if part in ("*", "..."):
            continue
        declared, has_default, default = re.sub(r"\([a-z!|> *-]*\)", "", part).partition("=")
        type_, _, name = declared.rpartition(" ")
        if name in MEMORY_ARGUMENTS:
            continue
        value = _default(default, type_) if has_default else None
        parsed.append(Argument(name, type_.strip(), value, bool(has_default)))
    views = _VIEW in results
    results = re.sub(r"\([a-z!|> *-]*\)", "", results.strip())
    listed = tuple(_split(results[1:-1])) if results.startswith("(") else (results,)
    name = op_name(f"{qualified}.{overload or 'default'}")
    return Schema(name, tuple(parsed), listed, text, tag == _POINTWISE, views)


_POINTWISE = "pointwise"
_VIEW = "(a)"
"""PyTorch's mark of a result that may share the memory of an argument."""

_DEFINED: dict[str, Schema] = {}


@cache
def _bundled() -> Mapping[str, str]:
    tables = [files("patcomp.ir").joinpath(f"{name}_schemas.txt").read_text() for name in ("aten", "library")]
    lines = "".join(tables).splitlines()
    return {op_name(line.partition("(")[0]): line for line in lines}


def known_names() -> list[str]:
    """The names of all ops in the bundled table and of those defined since, in order."""
    return [*_bundled(), *(name for name in _DEFINED if name not in _bundled())]


def define(schema_text: str) -> Schema:
    """Add an operator that the bundled table lacks (a custom op, a newer PyTorch); return its schema."""
    schema = parse_schema(schema_text)
    known = schema_of(schema.name)
    if known is None or known.text != schema.text:
        _DEFINED[schema.name] = schema
        find_op_class.cache_clear()
    return schema_of(schema.name) or schema


def schema_of(name: str) -> Schema | None:
    """The schema of an op by its name in the dialect, None when no such op is known."""
    if name not in _DEFINED and name in _bundled():
        _DEFINED[name] = parse_schema(_bundled()[name])
    return _DEFINED.get(name)


# ---- attributes and Python values -----------------------------------------------------------------


@lru_cache(maxsize=4096)
def _integer(value: int, type_: IntegerType) -> IntegerAttr:
    return IntegerAttr(value, type_)


def encode(value: Any, operands: list[SSAValue]) -> Attribute:
    """Encode a schema argument as an attribute; SSA values are appended to `operands` and leave `#aten.value`.

    Raises:
        TypeError: the value has no form in the dialect.
    """
    if value is None:
        return NONE
    if isinstance(value, Value):
        operands.append(value.ssa)
        return VALUE
    # xDSL's abstract classes come last, because `isinstance` on them takes several calls
    if isinstance(value, bool):
        return _integer(int(value), _I1)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise OverflowError(f"{value} does not fit 64 bits")
        return _integer(value, _I64)
    if isinstance(value, float):
        return FloatAttr(value, _F64)
    if isinstance(value, str):
        return StringAttr(value)
    if isinstance(value, list | tuple):
        return ArrayAttr([encode(item, operands) for item in value])
    if isinstance(value, SSAValue):
        operands.append(value)
        return VALUE
    if isinstance(value, Attribute):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be an operator argument")


def decode(attribute: Attribute, operands: Iterator[SSAValue]) -> Any:
    """The Python value of an encoded argument; operands come back as `Value`s, element types as attributes."""
    decoder = _DECODERS.get(type(attribute))
    return attribute if decoder is None else decoder(attribute, operands)


# a chain of `isinstance` on xDSL's abstract classes would be the most expensive part of reading an op
_DECODERS: dict[type[Attribute], Callable[[Any, Iterator[SSAValue]], Any]] = {
    ValueAttr: lambda attribute, operands: Value(next(operands)),
    NoneAttr: lambda attribute, operands: None,
    IntegerAttr: lambda attribute, operands: (
        bool(attribute.value.data) if attribute.type == _I1 else attribute.value.data
    ),
    FloatAttr: lambda attribute, operands: attribute.value.data,
    StringAttr: lambda attribute, operands: attribute.data,
    ArrayAttr: lambda attribute, operands: [decode(item, operands) for item in attribute.data],
}


# ---- op classes -----------------------------------------------------------------------------------


class AtenOp(OwnOperation):
    """Base of the ops of the dialect."""

    SCHEMA: ClassVar[Schema]
    FACTS: ClassVar[OpFacts]

    def arguments_by_name(self) -> dict[str, Any]:
        """Every schema argument in order, as `Value`s, Python values, lists of both, or None."""
        remaining = iter(self.operands)
        return {
            argument.name: decode(self.properties.get(argument.name, VALUE), remaining)
            for argument in self.SCHEMA.arguments
        }

    def print(self, printer: Printer) -> None:
        remaining = iter(self.operands)
        first = True
        for argument in self.SCHEMA.arguments:
            attribute = self.properties.get(argument.name)
            if attribute is not None and attribute == self.SCHEMA.defaults.get(argument.name):
                continue
            printer.print_string(" " if first else ", ")
            if attribute is None:
                # required tensors stand first, by position; a tensor elsewhere is named
                named = not first and (argument.has_default or argument.type != "Tensor")
                if named:
                    printer.print_string(f"{argument.name} = ")
                printer.print_ssa_value(next(remaining))
            else:
                printer.print_string(f"{argument.name} = ")
                _print_argument(attribute, remaining, printer)
            first = False
        printer.print_string(" : ")
        printer.print_function_type([value.type for value in self.operands], [value.type for value in self.results])

    @classmethod
    def parse(cls, parser: Parser) -> AtenOp:
        given: dict[str, Any] = {}
        order = [argument.name for argument in cls.SCHEMA.arguments]
        position = 0
        while next_token(parser) != ":":
            if given:
                parser.parse_punctuation(",")
            operand = parser.parse_optional_unresolved_operand()
            if operand is not None:
                if position >= len(order):
                    parser.raise_error(f"{cls.name} has only {len(order)} arguments")
                given[order[position]] = operand
            else:
                name = parser.parse_identifier()
                if name not in order:
                    parser.raise_error(f"{cls.name} has no argument {name}; it has {', '.join(order)}")
                parser.parse_punctuation("=")
                given[name] = _parse_argument(parser)
                position = order.index(name)
            position += 1
        parser.parse_punctuation(":")
        signature = parser.parse_function_type()
        unresolved: list[UnresolvedOperand] = []
        properties: dict[str, Attribute] = {}
        for argument in cls.SCHEMA.arguments:
            if argument.name not in given:
                properties[argument.name] = cls.SCHEMA.defaults.get(argument.name, NONE)
            elif isinstance(given[argument.name], UnresolvedOperand):
                unresolved.append(given[argument.name])
            else:
                properties[argument.name] = _collect(given[argument.name], unresolved)
        return cls.create(
            operands=parser.resolve_operands(unresolved, signature.inputs.data, parser.pos),
            result_types=signature.outputs.data,
            properties=properties,
        )


def _print_argument(attribute: Attribute, operands: Iterator[SSAValue], printer: Printer) -> None:
    if isinstance(attribute, ArrayAttr):
        printer.print_string("[")
        printer.print_list(attribute.data, lambda item: _print_argument(item, operands, printer))
        printer.print_string("]")
    elif isinstance(attribute, ValueAttr):
        printer.print_ssa_value(next(operands))
    elif isinstance(attribute, NoneAttr):
        printer.print_string("none")
    elif isinstance(attribute, IntegerAttr) and attribute.type == _I64:
        printer.print_string(str(attribute.value.data))
    elif isinstance(attribute, FloatAttr) and math.isfinite(attribute.value.data):
        mantissa, exponent, power = repr(attribute.value.data).partition("e")
        printer.print_string(mantissa + ("" if "." in mantissa else ".0") + exponent + power)
    else:
        printer.print_attribute(attribute)


def _parse_argument(parser: Parser) -> Any:
    if next_token(parser) == "[":
        return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_argument(parser))
    operand = parser.parse_optional_unresolved_operand()
    if operand is not None:
        return operand
    if parser.parse_optional_keyword("none") is not None:
        return NONE
    if not next_token(parser).startswith("0x"):  # bits of an infinity or NaN carry their type
        number = parser.parse_optional_number()
        if number is not None:
            return encode(number, [])
    return parser.parse_attribute()


def _collect(given: Any, unresolved: list[UnresolvedOperand]) -> Attribute:
    if isinstance(given, list):
        return ArrayAttr([_collect(item, unresolved) for item in given])
    if isinstance(given, UnresolvedOperand):
        unresolved.append(given)
        return VALUE
    return given


_ELEMENTS: dict[str, type[OpTrait]] = {
    "in_order": Whole, "whole": Whole, "selection": Selection, "movement": Movement,
}  # fmt: skip


def _traits(name: str, pointwise: bool, views: bool) -> Iterator[type[OpTrait]]:
    """The traits of an op, from its facts and from what PyTorch says."""
    facts = facts_of(name)
    if pointwise or facts.pointwise:
        yield Broadcasting
    if facts.same_shape:
        yield SameShape
    if moved := _ELEMENTS.get(facts.elements):
        yield moved
        if views and issubclass(moved, Selection):
            yield View


@cache
def overloads_with(trait: type[OpTrait]) -> frozenset[str]:
    """The names of the bundled ops that have a trait."""
    found: set[str] = set()
    for name, line in _bundled().items():
        schema, _, tag = line.partition("  # ")
        if any(issubclass(each, trait) for each in _traits(name, tag == _POINTWISE, _VIEW in schema)):
            found.add(name)
    return frozenset(found)


@cache
def find_op_class(name: str) -> type[AtenOp] | None:
    """The class of an op by its name in the dialect, None if no such operator is known."""
    schema = schema_of(name)
    if schema is None:
        return None
    fields: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": schema.text,
        "name": name,
        "inputs": var_operand_def(AnyAttr()),
        "outputs": var_result_def(AnyAttr()),
        "traits": traits_def(Pure(), *(trait() for trait in _traits(name, schema.pointwise, schema.views))),
    }
    for argument in schema.arguments:
        fields[f"{argument.name}_property"] = opt_prop_def(AnyAttr(), prop_name=argument.name)
    class_name = "".join(part.capitalize() for part in re.split(r"[._]", name)) + "Op"
    made: type[AtenOp] = irdl_op_definition(type(class_name, (AtenOp,), fields))
    made.SCHEMA, made.FACTS = schema, facts_of(name)
    return made


def op_class(name: str) -> type[AtenOp]:
    """The class of an op by its name in the dialect.

    Raises:
        KeyError: no such operator is known.
    """
    found = find_op_class(name)
    if found is None:
        raise KeyError(f"no operator {name!r} is known; `aten.define` adds the schema of a custom one")
    return found


def create(name: str, arguments: Mapping[str, Any], result_types: Sequence[Attribute]) -> AtenOp:
    """An unplaced op; arguments that are left out take their schema default.

    Raises:
        KeyError: there is no such operator, or it has no argument of a given name.
        TypeError: a required argument is missing, or a value has no form in the dialect.
    """
    cls = op_class(name)
    if unknown := arguments.keys() - cls.SCHEMA.names:
        raise KeyError(f"{name} has no argument {', '.join(sorted(unknown))}")
    operands: list[SSAValue] = []
    properties: dict[str, Attribute] = {}
    defaults = cls.SCHEMA.defaults
    for argument in cls.SCHEMA.arguments:
        if argument.name in arguments:
            encoded = encode(arguments[argument.name], operands)
            if encoded is not VALUE:
                properties[argument.name] = encoded
        elif argument.name in defaults:
            properties[argument.name] = defaults[argument.name]
        else:
            raise TypeError(f"{name} needs {argument.name}=")
    return cls.create(operands=operands, result_types=result_types, properties=properties)


def build(name: str, result_types: Attribute | ValueType | Sequence[Attribute | ValueType], **arguments: Any) -> Any:
    """Add an op at the active insertion point; return its `Value`, or the list of `Value`s of several results."""
    several = isinstance(result_types, Sequence)
    listed = result_types if isinstance(result_types, Sequence) else [result_types]
    types = [item.attribute if isinstance(item, ValueType) else item for item in listed]
    results = [Value(result) for result in Builder.current().insert(create(name, arguments, types)).results]
    return results if several else results[0]


class OpBuilder:
    """Add ops of one name, `aten.relu(type, x)`; overloads are attributes, `aten.mul.Tensor(type, x, y)`."""

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, overload: str) -> OpBuilder:
        if schema_of(f"{self.name}.{overload}") is None:
            raise AttributeError(f"{self.name} has no overload {overload!r}")
        return OpBuilder(f"{self.name}.{overload}")

    def __call__(self, result_types: Any, /, *arguments: Any, **named: Any) -> Any:
        names = [argument.name for argument in op_class(self.name).SCHEMA.arguments]
        if len(arguments) > len(names):
            raise TypeError(f"{self.name} takes {len(names)} arguments ({', '.join(names)}), got {len(arguments)}")
        return build(self.name, result_types, **dict(zip(names, arguments, strict=False)), **named)


@cache
def _operators() -> frozenset[str]:
    return frozenset(name.split(".")[1] for name in _bundled() if name.startswith("aten."))


def __getattr__(name: str) -> OpBuilder:
    if name not in _operators():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return OpBuilder(f"aten.{name}")


ATEN = Dialect("aten", [], [NoneAttr, ValueAttr])

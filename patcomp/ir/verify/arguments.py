"""Check an `aten` op against its PyTorch schema: its arguments and the number of its results."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.ir.aten import NONE, VALUE, AtenOp
from patcomp.ir.xdsl import ArrayAttr, Attribute


def argument_problems(op: AtenOp) -> Iterator[str]:
    """The problems of the operands, properties and results of an op."""
    schema = op.SCHEMA
    places = 0
    for argument in schema.arguments:
        attribute = op.properties.get(argument.name)
        if attribute is None:
            places += 1  # the argument is an operand by itself
            continue
        places += _places(attribute)
        optional = argument.type.endswith("?") or (argument.has_default and argument.default is None)
        if attribute == NONE and not optional:
            yield f"argument `{argument.name}` of type {argument.type} cannot be none"
    if places != len(op.operands):
        yield f"its arguments stand for {places} operands, but it has {len(op.operands)}"
    known = {argument.name for argument in schema.arguments}
    for name in op.properties:
        if name not in known:
            yield f"has no argument `{name}`"
    if op.regions:
        yield "takes no regions"
    variadic = any("[" in type_ for type_ in schema.result_types)
    if not variadic and len(op.results) != len([type_ for type_ in schema.result_types if type_]):
        yield f"makes {len(schema.result_types)} results, but has {len(op.results)}"


def _places(attribute: Attribute) -> int:
    """How many operands stand in an attribute."""
    if isinstance(attribute, ArrayAttr):
        return sum(_places(item) for item in attribute.data)
    return int(attribute == VALUE)
